"""Read operations of `Session` about its context: entries sent, pinned and removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from perdure.client.amounts import amount
from perdure.client.reads import EntryRef, SessionReader
from perdure.errors import InvalidEntry
from perdure.session.argument_checks import takes_all_declared
from perdure.session.fold import ContextWindow, undone_of
from perdure.session.ids import EntryId
from perdure.session.info import SessionInfo
from perdure.session.notes import CompactionUndone, Pin
from perdure.stores.access.collector import collector_paused
from perdure.stores.access.lazy_modules import Later

if TYPE_CHECKING:
    from perdure.client.conversation import agent_binding, role_sessions
    from perdure.context import build, window_end
    from perdure.context import compaction as compactions
    from perdure.context import pins as pin_notes
    from perdure.engine import windows
else:
    agent_binding = Later("perdure.client.conversation.agent_binding")
    build = Later("perdure.context.build")
    compactions = Later("perdure.context.compaction")
    pin_notes = Later("perdure.context.pins")
    role_sessions = Later("perdure.client.conversation.role_sessions")
    window_end = Later("perdure.context.window_end")
    windows = Later("perdure.engine.windows")

_FIRST_READ, _READ_MORE = 64, 4
"""Entries that a context within a budget reads first, and the factor of each next read."""


@takes_all_declared
class ContextReader(SessionReader):
    """Read operations of `Session` about its context and model."""

    async def context(self, budget_tokens: int | None = None) -> build.Context:
        """Return what a model would be sent now, with the entry of each message.

        For an agent's session it uses that agent's `history` and `max_messages`. `model` is the
        last switch on the branch, or the model of the session's agent; without an agent it is that
        of the last switch or answer.

        Raises: ValueError when `budget_tokens` is less than 1.
        """
        amount("budget_tokens", budget_tokens, least=1)
        leaf = (await self._look()).leaf
        shaping = agent_binding.context_settings_in(
            await self._backing.log.notes(self.id, agent_binding.BINDING_KINDS)
        )
        context = None
        if budget_tokens is not None or shaping.compaction.max_messages is not None:
            context = await self._context_of_end(leaf, shaping, budget_tokens)
        if context is None:
            window = await windows.pinned_window(self._backing.log, self.id, leaf)
            model = await self._model(window)
            with collector_paused():
                context = build.build_context(
                    window,
                    budget_tokens=budget_tokens,
                    history=shaping.history,
                    model=model,
                    max_messages=shaping.compaction.max_messages,
                )
        if context.thinking_level is None and shaping.thinking_level != "off":
            return msgspec.structs.replace(context, thinking_level=shaping.thinking_level)
        return context

    async def _context_of_end(
        self,
        leaf: EntryId | None,
        shaping: agent_binding.ContextSettings,
        budget_tokens: int | None,
    ) -> build.Context | None:
        """Build the context from the end of the window; None if it needs the whole window."""
        log, limit = self._backing.log, _FIRST_READ
        pins = await self.pins()
        while True:
            window = await log.context_window(self.id, leaf, limit)
            if not window.earlier:
                return None
            near = await windows.near_pins(log, self.id, window_end.from_question(window), pins)
            if near is None:
                return None
            context = window_end.context_of_end(
                window,
                pins,
                near,
                budget_tokens=budget_tokens,
                history=shaping.history,
                max_messages=shaping.compaction.max_messages,
            )
            if context is not None:
                model = await self._model(window)
                return msgspec.structs.replace(context, model=model or context.model)
            limit *= _READ_MORE

    async def _model(self, window: ContextWindow) -> str | None:
        """Return the model of the branch that ends with `window`; for a role, its flow's choice."""
        state = self._state
        if state.header.origin == "role" and window.state.model_change is None:
            store, clock = self._backing.store, self._outside.clock
            model = await role_sessions.model_of_role(store, clock, state.header)
            if model is not None:
                return model
        return await agent_binding.model_of(self._backing.log, self.id, window)

    async def info(self) -> SessionInfo:
        """Return the current row of the session in `Store.recent`, with its model."""
        state, log = await self._look(), self._backing.log
        if state.info.status == "erased":
            return state.info
        window = await log.context_window(self.id, state.leaf, agent_binding.LOOKED_AT)
        model = await self._model(window)
        return msgspec.structs.replace(state.info, model=model)

    async def pins(self) -> frozenset[EntryId]:
        """Return the pinned entries of all branches."""
        return pin_notes.pins_of(await self._backing.log.notes(self.id, (Pin.kind,)))

    async def left_by(self, compaction: EntryRef | None = None) -> compactions.LeftContext | None:
        """Return what `compaction` (default: the one in effect) removed from the context and kept.

        Shape: None when no compaction is in effect.
        Raises: EntryNotFound; InvalidEntry when it is not a compaction.
        """
        log = self._backing.log
        if compaction is None:
            window = await log.context_window(self.id, (await self._look()).leaf, 1)
            newest = window.state.compaction
            end = None if newest is None else newest.id
        else:
            end = await self._resolve(compaction)
        if end is None:
            return None
        undone = undone_of(await log.notes(self.id, (CompactionUndone.kind,)))
        left = compactions.left_context(await log.branch(self.id, end), undone, await self.pins())
        if left is None:
            reason = f"{end} is no compaction"
            raise InvalidEntry(reason, told=reason)
        return left
