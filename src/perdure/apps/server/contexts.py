"""The context of a model call: of the next call, and of any call in the log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from perdure.apps.server.context_values import (
    ContextPart,
    ContextView,
    OverflowView,
    RecalledPart,
    SentOptions,
    SentTool,
    TrimmedView,
)
from perdure.apps.server.problems import Problem
from perdure.apps.server.timeline import tokens_of
from perdure.apps.server.views import view_of
from perdure.apps.session_rows import states_of
from perdure.client.agents.agent import Agent
from perdure.client.agents.delegation.invocation import with_agent_list
from perdure.client.agents.runtime_services import Host
from perdure.client.conversation.agent_binding import (
    BINDING_KINDS,
    Binding,
    context_settings_in,
    tool_hashes,
)
from perdure.client.conversation.authority import authority_of
from perdure.client.conversation.workspace import kept_workspace
from perdure.client.memory.last_turn import LastTurn, memory_of_turn
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.context.build import Context, build_context
from perdure.context.emission import ContextMessage
from perdure.context.pins import pins_of, with_pins
from perdure.context.prompts import CALL_INTERRUPTED
from perdure.errors import ConfigError, ContextOverflow
from perdure.events.wire import wire
from perdure.session.codec import body_of, readable
from perdure.session.entries import Entry
from perdure.session.fold import ContextWindow, undone_of, window_of
from perdure.session.ids import EntryId, StreamId, entry_id
from perdure.session.ledger import History, ModelCalled, ModelFinished, Trimmed, TurnStarted
from perdure.session.messages import ToolResultPart
from perdure.session.notes import (
    AgentBound,
    CompactionUndone,
    LeafMoved,
    Pin,
    SessionStarted,
    WorkspaceChanged,
    in_workspace,
)
from perdure.stores.access.collector import collector_paused
from perdure.stores.session_store import SessionStore
from perdure.tools.output import Output
from perdure.tools.registry import ToolRegistry

_PAGE = 256
_STILL_TO_COME = "(The call runs or waits for an answer. Its result is still to come.)"


class _Call(msgspec.Struct, frozen=True):
    """A model call, the branch that it continued, and the entries of its turn before the call."""

    body: ModelCalled
    leaf: EntryId | None
    turn: Sequence[Entry]
    finished: ModelFinished | None
    trimmed: Trimmed | None


async def next_context(
    host: Host, store: Store, session: Session, budget: int | None, last: int | None
) -> ContextView:
    """Return the next call's context within `budget` tokens; it shows the newest `last` messages.

    A tool call that runs or waits for an answer is shown with a placeholder as its result. The
    instructions and tools come from the agent in force. Without an agent in force, instructions and
    tools are empty, because any agent may continue the session.
    """
    context, info = await session.context(budget), await session.info()
    if (await states_of(store, [info]))[info.id] in ("running", "waiting"):
        context = msgspec.structs.replace(context, messages=_awaiting(context.messages))
    view = await asyncio.to_thread(_view, context, last)
    authority = await authority_of(store.backend, session.id)
    bound = authority.bound if authority.withheld is None else None
    return msgspec.structs.replace(
        _with_agent(view, bound, host.agents),
        budget=budget,
        overflow=_overflow(context, budget),
    )


def _with_agent(
    view: ContextView, bound: Binding | None, agents: Mapping[str, Agent]
) -> ContextView:
    """Return `view` with the data that the agent in `bound` adds to each request."""
    if bound is None:
        return view
    snapshot = bound.agent or {}
    options = _options(snapshot)
    return msgspec.structs.replace(
        view,
        system=_system(bound, options),
        tools=_tools(snapshot, bound.workspace or {}, agents),
        options=options,
    )


def _overflow(context: Context, budget: int | None) -> OverflowView | None:
    if budget is None or context.tokens <= budget:
        return None
    detail = (
        f"the newest exchange, pinned messages and the summary are always sent: they need about "
        f"{context.tokens} tokens, and the budget is {budget}"
    )
    return OverflowView(
        code=ContextOverflow.code, detail=detail, tokens=context.tokens, budget=budget
    )


def _awaiting(messages: Sequence[ContextMessage]) -> tuple[ContextMessage, ...]:
    """Return `messages`; each call of the newest answer that has no result gets a placeholder."""
    places = range(len(messages) - 1, -1, -1)
    newest = next((n for n in places if messages[n].message.role == "assistant"), 0)
    return (*messages[:newest], *map(_awaited, messages[newest:]))


def _awaited(each: ContextMessage) -> ContextMessage:
    parts = tuple(
        msgspec.structs.replace(part, text=_STILL_TO_COME, is_error=False)
        if isinstance(part, ToolResultPart) and part.text == CALL_INTERRUPTED
        else part
        for part in each.message.parts
    )
    return msgspec.structs.replace(each, message=msgspec.structs.replace(each.message, parts=parts))


async def context_of_call(host: Host, session: Session, seq: int, last: int | None) -> ContextView:
    """Return the context that the call at `seq` sent, computed from the log as it was then.

    The log contains only the names and the hashes of the tools. The tool schemas come from tools in
    `host` that have the same hash.
    Raises: Problem 404 if no model call is at `seq`; 409 if the call only wrote a summary.
    """
    store = host.store.backend
    call = await _call_at(store, session, seq)
    notes = await _notes_before(store, session.id, seq)
    path = await store.branch(session.id, call.leaf)
    window = with_pins(window_of(path, undone_of(notes)), path, pins_of(notes))
    settings = context_settings_in(notes)
    view = await asyncio.to_thread(_view_of_call, call, window, settings.history, last)
    usage = None if call.finished is None else call.finished.usage
    return msgspec.structs.replace(
        _with_agent(view, _binding_before(notes), host.agents),
        call=seq,
        tokens=call.body.tokens_estimated or view.tokens,
        thinking_level=view.thinking_level or _level(settings.thinking_level),
        reported=None if usage is None else tokens_of(usage),
        trimmed=None if call.trimmed is None else view_of(TrimmedView, call.trimmed),
        recalled=_recalled(await memory_of_turn(store, call.turn)),
    )


def _binding_before(notes: Sequence[Entry]) -> Binding | None:
    """Return the newest agent binding in `notes`, including later changes of the workspace."""
    bound: Binding | None = None
    for note in notes:
        body = body_of(note)
        if isinstance(body, SessionStarted | AgentBound) and body.agent is not None:
            bound = body
        elif isinstance(body, WorkspaceChanged) and bound is not None:
            bound = in_workspace(bound, body)
    return bound


def _options(snapshot: Mapping[str, object]) -> SentOptions:
    """Return the options in the `snapshot` of an agent, which can come from another machine."""
    named = {"temperature": "temperature", "max_output_tokens": "maxOutputTokens"}
    found = {new: snapshot[name] for name, new in named.items() if name in snapshot}
    try:
        return msgspec.convert({**found, "outputSchema": snapshot.get("output")}, SentOptions)
    except msgspec.ValidationError:
        return SentOptions()


def _system(bound: Binding, options: SentOptions) -> str | None:
    prompt = bound.system_prompt
    if options.output_schema is None:
        return prompt
    asked = Output(None, options.output_schema).instruction
    return "\n\n".join(filter(None, (prompt, asked)))


def _tools(
    snapshot: Mapping[str, object], workspace: Mapping[str, object], agents: Mapping[str, Agent]
) -> list[SentTool]:
    """Return the tools in `snapshot`; they have schemas if `agents` still have these tools."""
    agent, here = agents.get(str(snapshot.get("id"))), ToolRegistry(())
    if agent is not None:
        with contextlib.suppress(ConfigError):  # its descriptions use a name that is missing here
            here = with_agent_list(agent.tools_in(kept_workspace(workspace)), agents)
    hashes = {name: here.schema_hash(name) for name in here.names}
    declared = {each.name: each for each in here.declarations()}
    return [
        SentTool(
            name=name,
            is_loaded=True,
            description=declared[name].description,
            parameters=dict(declared[name].parameters),
        )
        if hash is not None and hashes.get(name) == hash
        else SentTool(name=name, is_loaded=False)
        for name, hash in tool_hashes(snapshot).items()
    ]


def _view_of_call(
    call: _Call, window: ContextWindow, history: History, last: int | None
) -> ContextView:
    model, trimmed = call.body.model, call.trimmed
    with collector_paused():
        if trimmed is not None and trimmed.dropped:
            return _view(_of_length(window, history, model, trimmed.kept), last)
        return _view(build_context(window, history=history, model=model), last)


async def _call_at(store: SessionStore, session: Session, seq: int) -> _Call:
    found = await store.entries(session.id, seq - 1, _PAGE)
    body = readable(found[0]) if found and found[0].seq == seq else None
    if not isinstance(body, ModelCalled):
        raise Problem(404, "call_not_found", f"entry {seq} of the session is no model call")
    if body.purpose != "answer":
        raise Problem(
            409, "call_is_summary", f"call {seq} wrote a summary; its request is not stored"
        )
    about = [readable(entry) for entry in found if entry.about == entry_id(session.id, seq)]
    return _Call(
        body=body,
        leaf=await _leaf_before(store, session, seq),
        turn=await _turn_before(session, seq),
        finished=next((each for each in about if isinstance(each, ModelFinished)), None),
        trimmed=next((each for each in about if isinstance(each, Trimmed)), None),
    )


async def _leaf_before(store: SessionStore, session: Session, seq: int) -> EntryId | None:
    """Return the session's leaf as it was before the entry `seq`."""
    async for entry in session.entries(seq, newest_first=True):
        if entry.lane == "tree":
            return entry.id
        moved = body_of(entry) if entry.kind == LeafMoved.kind else None
        if isinstance(moved, LeafMoved):
            return moved.target
    origin = (await store.state(session.id)).header.fork
    return None if origin is None else origin.leaf


async def _turn_before(session: Session, seq: int) -> Sequence[Entry]:
    """Return the entries before `seq` of the turn that contains `seq`, in log order."""
    found: list[Entry] = []
    async for entry in session.entries(seq, newest_first=True):
        found.append(entry)
        if entry.kind == TurnStarted.kind:
            return found[::-1]
    return ()


async def _notes_before(store: SessionStore, stream: StreamId, seq: int) -> list[Entry]:
    """Return the notes in the log that affect the context of a model call.

    For a fork, the result includes notes of its origin. Notes in the session's own log are included
    only if they are before `seq`.
    """
    kinds = (*BINDING_KINDS, WorkspaceChanged.kind, Pin.kind, CompactionUndone.kind)
    notes = await store.notes(stream, kinds)
    return [note for note in notes if note.stream != stream or note.seq < seq]


def _of_length(window: ContextWindow, history: History, model: str, kept: int) -> Context:
    """Return the context of `window` with its newest exchanges, at most `kept` messages in total.

    `build_context` does not count summaries and pinned messages, so its result can be longer than
    `kept`. If the result is too long, lower limits are tried until the messages fit.
    """
    for most in range(kept, -1, -1):
        context = build_context(window, history=history, model=model, max_messages=most)
        if len(context.messages) <= kept:
            return context
    return build_context(window, history=history, model=model, max_messages=0)


def _view(context: Context, last: int | None) -> ContextView:
    shown = context.messages if last is None else context.messages[-last:]
    return ContextView(
        model=context.model,
        thinking_level=context.thinking_level,
        tokens=context.tokens,
        messages=[
            ContextPart(
                role=part.message.role,
                parts=cast("dict[str, Any]", wire(part.message))["parts"],
                entry_id=part.entry_id,
            )
            for part in shown
        ],
        earlier=len(context.messages) - len(shown),
        dropped=context.dropped,
        skipped=context.skipped,
    )


def _level(configured: str | None) -> str | None:
    return None if configured == "off" else configured


def _recalled(memory: LastTurn | None) -> list[RecalledPart]:
    if memory is None:
        return []
    return [view_of(RecalledPart, piece, entry_id=piece.id) for piece in memory.recalled]
