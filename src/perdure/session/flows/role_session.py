"""`RoleSession`: the session of a role instance in A-Society's field names.

A `RoleSession` contains the current transcript, the messages that compactions replaced, and the
state of the session. All fields are computed from the session's own log. A `RoleSession` is never
stored; its JSON is the ``transcript.json`` of A-Society.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perdure.session import ledger, notes
from perdure.session.clock import timestamp
from perdure.session.entries import Entry
from perdure.session.ids import EntryId
from perdure.session.kinds import Compaction
from perdure.session.messages import Message, TextPart, ThinkingPart, ToolResultPart

Exchange = dict[str, object]
"""A message in A-Society's format.

Shape: the key ``role``, and the keys of messages with that role.
"""


class NodeContext(msgspec.Struct, frozen=True, rename="camel"):
    """The conversation at the role's current node."""

    node_id: str
    exchanges: tuple[Exchange, ...] = ()


class CompactionArchive(msgspec.Struct, frozen=True, rename="camel"):
    """The messages that a compaction replaced, and its summary.

    `compacted_at` is a time in ISO 8601, in UTC.
    """

    id: str
    trigger: str
    node_id: str
    compacted_at: str
    archived_transcript_history: tuple[Exchange, ...]
    replacement_message: Exchange


class RoleSession(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A role's session.

    `latest_context_usage` is a number of tokens. `is_active` is True while a turn is open.
    """

    role_name: str
    logical_session_id: str
    transcript_history: tuple[Exchange, ...]
    is_active: bool
    current_node_context: NodeContext | None = None
    current_node_id: str | None = None
    system_prompt: str | None = None
    latest_context_usage: int | None = None
    compaction_archives: tuple[CompactionArchive, ...] = ()


class _Seen(msgspec.Struct):
    """Collects the fields of a `RoleSession` while a session's log is read entry by entry."""

    history: list[tuple[EntryId | None, Exchange]] = []
    archives: list[CompactionArchive] = []
    node: str | None = None
    node_begins: EntryId | None = None
    has_node_of_import: bool = False
    node_of_import: int = 0
    system_prompt: str | None = None
    usage: int | None = None
    is_active: bool = False


def role_session(role: str, id: str, log: Iterable[tuple[Entry, object]]) -> RoleSession:
    """Return the session `id` of `role`, computed from `log` (all entries with decoded bodies)."""
    seen = _Seen()
    for entry, body in log:
        _read(seen, entry, body)
    context = None if seen.node is None else NodeContext(seen.node, _exchanges(seen))
    return RoleSession(
        role_name=role,
        logical_session_id=id,
        transcript_history=tuple(exchange for _, exchange in seen.history),
        is_active=seen.is_active,
        current_node_context=context,
        current_node_id=seen.node,
        system_prompt=seen.system_prompt,
        latest_context_usage=seen.usage,
        compaction_archives=tuple(seen.archives),
    )


def _read(seen: _Seen, entry: Entry, body: object) -> None:
    match body:
        case Message():
            seen.history += [(entry.id, exchange) for exchange in _exchanges_of(body)]
            if body.role == "assistant" and body.usage is not None:
                seen.usage = body.usage.total_tokens
        case Compaction():
            _compact(seen, entry, body)
        case notes.SessionStarted() | notes.AgentBound():
            seen.system_prompt = body.system_prompt or seen.system_prompt
        case notes.NodeEntered():
            seen.node, seen.node_begins, seen.has_node_of_import = body.node, entry.about, False
        case ledger.TurnStarted() | ledger.TurnFinished():
            seen.is_active = isinstance(body, ledger.TurnStarted)
        case notes.RoleImported():
            _import(seen, body)
        case _:
            pass


def _exchanges(seen: _Seen) -> tuple[Exchange, ...]:
    """Return the messages since the start of the node.

    If the history lacks the start of the node, all messages are returned.
    """
    if seen.has_node_of_import:
        return tuple(exchange for _, exchange in seen.history[seen.node_of_import :])
    ids = [id for id, _ in seen.history]
    start = ids.index(seen.node_begins) if seen.node_begins in ids else 0
    return tuple(exchange for _, exchange in seen.history[start:])


def _exchanges_of(message: Message) -> list[Exchange]:
    if message.role == "tool":
        return [_result(part) for part in message.parts if isinstance(part, ToolResultPart)]
    if message.role == "assistant":
        return [_answer(message)]
    return [{"role": "user", "content": message.text}] if message.role == "user" else []


def _answer(message: Message) -> Exchange:
    text = "\n\n".join(part.text for part in message.parts if isinstance(part, TextPart))
    reasoning = "\n\n".join(p.text for p in message.parts if isinstance(p, ThinkingPart))
    thought = {"reasoning": reasoning} if reasoning else {}
    if not message.tool_calls:
        return {"role": "assistant", "content": text, **thought}
    calls = [{"id": call.id, "name": call.name, "input": call.args} for call in message.tool_calls]
    said = {"text": text} if text else {}
    return {"role": "assistant_tool_calls", "calls": calls, **said, **thought}


def _result(part: ToolResultPart) -> Exchange:
    return {
        "role": "tool_result",
        "callId": part.call_id,
        "toolName": part.name or "",
        "content": part.text,
        "isError": part.is_error,
    }


def _compact(seen: _Seen, entry: Entry, body: Compaction) -> None:
    replacement: Exchange = {"role": "user", "content": body.summary}
    before = seen.history
    ids = [id for id, _ in before]
    kept = before[ids.index(body.first_kept) :] if body.first_kept in ids else []
    trigger = "manual" if body.reason == "manual" else "auto"
    archived = tuple(exchange for _, exchange in before)
    at = timestamp(entry.at)
    archive = CompactionArchive(entry.id, trigger, seen.node or "", at, archived, replacement)
    seen.archives.append(archive)
    seen.history = [(entry.id, replacement), *kept]
    seen.usage = body.tokens_after or 0
    seen.node_of_import = 0


def _import(seen: _Seen, body: notes.RoleImported) -> None:
    """Apply the imported state of the session.

    The imported messages are also entries of the tree, so that the model receives them.
    """
    given = msgspec.convert(body.session, RoleSession)
    context = given.current_node_context
    seen.history = [(None, exchange) for exchange in given.transcript_history]
    seen.archives = list(given.compaction_archives)
    seen.node, seen.has_node_of_import = given.current_node_id, True
    if context is not None:
        seen.node = seen.node or context.node_id
        seen.node_of_import = max(0, len(seen.history) - len(context.exchanges))
    seen.is_active = given.is_active
    seen.system_prompt = given.system_prompt
    seen.usage = given.latest_context_usage
