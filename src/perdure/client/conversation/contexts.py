"""The context of a session: messages for the model; pinned, removed and undone entries."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from perdure.client.conversation.append import SessionWriter
from perdure.client.reads import EntryRef, SessionReader
from perdure.context import pins
from perdure.errors import InvalidEntry
from perdure.session.entries import Entry
from perdure.session.fold import ContextWindow, undone_of
from perdure.session.ids import EntryId
from perdure.session.info import SessionInfo
from perdure.session.kinds import Compaction
from perdure.session.notes import CompactionUndone, Pin
from perdure.stores.access.collector import collector_paused
from perdure.stores.access.lazy_modules import Later

if TYPE_CHECKING:
    from perdure.client.conversation import agent_binding, role_sessions
    from perdure.context import build, window_end
    from perdure.context import compaction as compactions
    from perdure.engine import windows
else:
    agent_binding = Later("perdure.client.conversation.agent_binding")
    build = Later("perdure.context.build")
    compactions = Later("perdure.context.compaction")
    role_sessions = Later("perdure.client.conversation.role_sessions")
    window_end = Later("perdure.context.window_end")
    windows = Later("perdure.engine.windows")

_FIRST_READ, _READ_MORE = 64, 4
"""A context within a budget reads `_FIRST_READ` entries first.

Each next read has `_READ_MORE` times as many entries as the read before.
"""


async def context_of(writer: SessionWriter, budget_tokens: int | None) -> build.Context:
    """Implement `Session.context`."""
    reader = writer.reader
    leaf = (await reader.look()).leaf
    notes = await reader.log.notes(reader.id, agent_binding.BINDING_KINDS)
    shaping = agent_binding.context_settings_in(notes)
    context = None
    if budget_tokens is not None or shaping.compaction.max_messages is not None:
        context = await _context_of_end(writer, leaf, shaping, budget_tokens)
    if context is None:
        window = await windows.pinned_window(reader.log, reader.id, leaf)
        model = await _model(writer, window)
        if windows.are_long(window.entries):
            context = await asyncio.to_thread(_built, window, shaping, budget_tokens, model)
        else:
            context = _built(window, shaping, budget_tokens, model)
    if context.thinking_level is None and shaping.thinking_level != "off":
        return msgspec.structs.replace(context, thinking_level=shaping.thinking_level)
    return context


def _built(
    window: ContextWindow,
    shaping: agent_binding.ContextSettings,
    budget_tokens: int | None,
    model: str | None,
) -> build.Context:
    with collector_paused():
        return build.build_context(
            window,
            budget_tokens=budget_tokens,
            history=shaping.history,
            model=model,
            max_messages=shaping.compaction.max_messages,
        )


async def _context_of_end(
    writer: SessionWriter,
    leaf: EntryId | None,
    shaping: agent_binding.ContextSettings,
    budget_tokens: int | None,
) -> build.Context | None:
    """Build the context from the end of the branch at `leaf`; None if this end is not enough."""
    log, id, limit = writer.reader.log, writer.reader.id, _FIRST_READ
    pinned = await pins_of(writer.reader)
    while True:
        window = await log.context_window(id, leaf, limit)
        if not window.earlier:
            return None
        near = await windows.near_pins(log, id, window_end.from_question(window), pinned)
        if near is None:
            return None
        context = window_end.context_of_end(
            window,
            pinned,
            near,
            budget_tokens=budget_tokens,
            history=shaping.history,
            max_messages=shaping.compaction.max_messages,
        )
        if context is not None:
            model = await _model(writer, window)
            return msgspec.structs.replace(context, model=model or context.model)
        limit *= _READ_MORE


async def _model(writer: SessionWriter, window: ContextWindow) -> str | None:
    """Return the model of the branch that ends with `window`.

    If the session belongs to a role and the branch sets no model, the model that the flow sets is
    returned.
    """
    reader = writer.reader
    header = reader.state.header
    if header.origin == "role" and window.state.model_change is None:
        model = await role_sessions.model_of_role(writer.store, writer.outside.clock, header)
        if model is not None:
            return model
    return await agent_binding.model_of(reader.log, reader.id, window)


async def info_of(writer: SessionWriter) -> SessionInfo:
    """Implement `Session.info`."""
    reader = writer.reader
    state = await reader.look()
    if state.info.status == "erased":
        return state.info
    window = await reader.log.context_window(reader.id, state.leaf, agent_binding.LOOKED_AT)
    return msgspec.structs.replace(state.info, model=await _model(writer, window))


async def pins_of(reader: SessionReader) -> frozenset[EntryId]:
    """Implement `Session.pins`."""
    return pins.pins_of(await reader.log.notes(reader.id, (Pin.kind,)))


async def left_by(
    reader: SessionReader, compaction: EntryRef | None
) -> compactions.LeftContext | None:
    """Implement `Session.left_by`."""
    if compaction is None:
        newest = await _compaction(reader)
        end = None if newest is None else newest.id
    else:
        end = await reader.resolve(compaction)
    if end is None:
        return None
    undone = await _undone(reader)
    branch = await reader.log.branch(reader.id, end)
    left = compactions.left_context(branch, undone, await pins_of(reader))
    if left is None:
        reason = f"{end} is no compaction"
        raise InvalidEntry(reason, told=reason)
    return left


async def undo_compaction(writer: SessionWriter, compaction: EntryRef | None) -> Entry | None:
    """Implement `Session.uncompact`."""
    reader = writer.reader
    target = await (_compaction(reader) if compaction is None else reader.entry(compaction))
    if target is None or target.kind != Compaction.kind:
        reason = "there is no compaction to undo"
        raise InvalidEntry(reason, told=f"{reason} in session {reader.id}")
    if target.id in await _undone(reader):
        return None
    return await writer.note(CompactionUndone(), target.id)


async def _compaction(reader: SessionReader) -> Entry | None:
    """Return the newest compaction of the branch that was not undone, or None."""
    window = await reader.log.context_window(reader.id, (await reader.look()).leaf, 1)
    return window.state.compaction


async def _undone(reader: SessionReader) -> frozenset[EntryId]:
    return undone_of(await reader.log.notes(reader.id, (CompactionUndone.kind,)))
