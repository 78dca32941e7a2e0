"""Compute the feed of a role, the readable history of its work, from two logs.

The flow's log records the start, the handoffs and the returns of the role; the log of the role's
session records the reasoning, text and actions of the role. A feed is computed entry by entry, from
the flow's log and from the log of the role's session. A feed is never stored, and no item is
dropped. An item changes only while it is the newest item (text is added to it) or is pending (it
has no outcome yet). A reader can continue from a `FeedPoint`, over any number of pages. Reading a
feed in pages gives the same items as reading it as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from perdure.bounds.short_repr import ShortRepr
from perdure.session import ledger, notes
from perdure.session.entries import Entry
from perdure.session.flows import kinds
from perdure.session.ids import StreamId
from perdure.session.kinds import Compaction
from perdure.session.messages import Message, TextPart, ThinkingPart

FeedItemType = Literal[
    "assistant",
    "user",
    "event",
    "error",
    "handoff",
    "resume",
    "repair",
    "reasoning",
    "tool",
    "tool-success",
    "tool-error",
    "activation",
]

COMPACTION = "compaction"
"""Label of the feed item for a running compaction, and the key of this item in `pending`."""

replace = msgspec.structs.replace


class FeedItem(ShortRepr, frozen=True, rename="camel", omit_defaults=True):
    """One item of a feed, in A-Society's field names.

    Shape: `id` is ``<role>_<number>``; the numbers start at 1.
    """

    id: str
    type: FeedItemType
    label: str
    text: str
    reasoning_display: Literal["redacted"] | None = None


class FeedPoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """The position up to which a role's feed was read, and the state needed to continue.

    `open` is the item to which the next text is added. `pending` maps each tool call without an
    outcome to its item. `asked` maps the entry of each open question to the call or topic that the
    question is about. `nodes` are the nodes that the role has started. `entry` states who wrote the
    message that starts the next turn: perdure (``composed``) or a person (``said``).
    """

    role: str
    count: int = 0
    open: FeedItem | None = None
    pending: dict[str, FeedItem] = {}
    asked: dict[str, str] = {}
    nodes: tuple[str, ...] = ()
    entry: Literal["composed", "said"] = "composed"
    is_turn_beginning: bool = False
    flow_seq: int = -1
    session_seq: int = -1


Log = Iterable[tuple[Entry, object]]
"""The entries of a log, each with its decoded body."""

_Step = tuple[FeedPoint, tuple[FeedItem, ...]]


def feed_of(role: str, log: Log) -> tuple[FeedItem, ...]:
    """Return the whole feed of a role instance. Shape: `log` comes from `merge_logs`."""
    return changes(FeedPoint(role), log)[1]


def changes(point: FeedPoint, log: Log) -> tuple[FeedPoint, tuple[FeedItem, ...]]:
    """Return the new point and the items that `log` (the entries after `point`) adds or changes."""
    changed: dict[str, FeedItem] = {}
    for entry, body in log:
        point, items = feed_after(point, entry, body)
        changed.update((item.id, item) for item in items)
    return point, tuple(changed.values())


def feed_after(
    point: FeedPoint, entry: Entry, body: object
) -> tuple[FeedPoint, tuple[FeedItem, ...]]:
    """Return `point` after one more entry, and the items that the entry adds or changes."""
    if isinstance(body, kinds.FLOW_BODIES):
        point = replace(point, flow_seq=entry.seq)
        if getattr(body, "role", point.role) != point.role:
            return point, ()  # about another role
    else:
        point = replace(point, session_seq=entry.seq)
    if isinstance(body, notes.Question):
        call = " ".join(each for each in (body.tool, body.preview) if each)
        return replace(point, asked=point.asked | {entry.id: call or body.topic}), ()
    if isinstance(body, notes.Answer):
        return _on_answer(point, entry.about or "", body)
    apply = _APPLY.get(type(body))
    return (point, ()) if apply is None else apply(point, body)


# ---------------------------------------------------------------- two logs, one order


def merge_logs(
    flow: Sequence[tuple[Entry, object]], session: Sequence[tuple[Entry, object]]
) -> Iterator[tuple[Entry, object]]:
    """Merge the log of a flow and the log of a role's session by time.

    Entries of one commit have the same time. Among entries of the same time, a claim comes before
    the turn that it starts. The flow's entries about the end of a turn come after the session's
    entries about that end.
    """
    i = j = 0
    is_turn_due = False
    while i < len(flow) and j < len(session):
        is_beginning = isinstance(session[j][1], ledger.TurnStarted)
        is_flow_first = flow[i][0].at < session[j][0].at
        if flow[i][0].at == session[j][0].at:
            is_flow_first = is_beginning and not is_turn_due
        if is_flow_first:
            is_turn_due = begins_turn(flow[i][1], session[j][0].stream)
            yield flow[i]
            i += 1
        else:
            is_turn_due = is_turn_due and not is_beginning
            yield session[j]
            j += 1
    yield from flow[i:]
    yield from session[j:]


def begins_turn(body: object, session: StreamId) -> bool:
    """Return True if the flow's entry with `body` starts the next turn of `session`."""
    if isinstance(body, kinds.NodeClaimed | kinds.ImprovementClaimed):
        return body.session == session
    return isinstance(body, kinds.RepairAsked) and session.endswith(f"__{body.role}")


# ---------------------------------------------------------------- entries of the flow


def _on_claim(point: FeedPoint, body: kinds.NodeClaimed) -> _Step:
    nodes = point.nodes if body.node in point.nodes else (*point.nodes, body.node)
    is_first = body.node not in point.nodes
    point = replace(point, nodes=nodes, entry="composed" if body.text is None else "said")
    if body.cause == "resume":
        return _add_item(point, "resume", "Resumed", f"Node {body.node} resumed")
    verb = "started" if is_first else "resumed"
    return _add_item(point, "activation", "Activated", f"Node {body.node} {verb}")


def _reflecting(point: FeedPoint, body: kinds.ImprovementClaimed) -> _Step:
    point = replace(point, entry="composed" if body.text is None else "said")
    return _add_item(point, "activation", "Activated", "Review of the flow")


def _on_park(point: FeedPoint, body: kinds.NodeParked | kinds.ImprovementParked) -> _Step:
    """Add an item to the feed if the turn failed.

    A node that only waits for a person gets no item.
    """
    if body.reason not in ("autonomous-abort", "consent-denied"):
        return point, ()
    return _add_item(point, "error", "Stopped", body.detail or f"the turn ended: {body.reason}")


def _repair(point: FeedPoint, body: kinds.RepairAsked) -> _Step:
    point = replace(point, entry="composed")
    return _add_item(point, "repair", "Repair", f"{body.summary} ({body.code}, {body.attempt})")


def _on_handoff(point: FeedPoint, body: kinds.HandoffMade) -> _Step:
    if body.node not in point.nodes:
        return point, ()
    by = f", approved by {body.approved_by}" if body.approved_by else ""
    told = ", ".join(f"{target.artifact} to {target.node}" for target in body.targets)
    warned = "".join(f"\n{warning}" for warning in body.warnings)
    return _add_item(point, "handoff", "Handoff", f"{body.node} handed {told}{by}{warned}")


def _on_staged(point: FeedPoint, body: kinds.HandoffStaged) -> _Step:
    told = ", ".join(f"{target.artifact} to {target.node}" for target in body.targets)
    return _add_item(point, "event", "Approval", f"{body.node} wants to hand {told}")


def _on_decline(point: FeedPoint, body: kinds.HandoffDeclined) -> _Step:
    note = f": {body.note}" if body.note else ""
    return _add_item(point, "event", "Declined", f"{body.by} declined the handoff{note}")


def _on_await(point: FeedPoint, body: kinds.HandoffAwaited) -> _Step:
    if body.node not in point.nodes:
        return point, ()
    return _add_item(point, "event", "Waiting", f"{body.node} waits for a handoff")


def _on_configured(point: FeedPoint, body: kinds.RoleConfigured) -> _Step:
    chosen = (
        [] if body.model is None else [f"model {body.model}"],
        [] if body.skills is None else [f"skills {', '.join(body.skills) or 'none'}"],
        [] if body.tools is None else [f"tools {', '.join(body.tools) or 'none'}"],
    )
    told = "; ".join(word for words in chosen for word in words) or "as its agent says"
    return _add_item(point, "event", "Configured", told)


def _on_finding(point: FeedPoint, body: kinds.FindingsMade) -> _Step:
    return _add_item(point, "handoff", "Findings", f"wrote {body.findings}")


# ---------------------------------------------------------------- entries of the session


def _turn_started(point: FeedPoint, _: ledger.TurnStarted) -> _Step:
    return replace(point, is_turn_beginning=True), ()


def _message(point: FeedPoint, message: Message) -> _Step:
    if message.role == "user":
        is_shown = not point.is_turn_beginning or point.entry == "said"
        point = replace(point, is_turn_beginning=False, entry="composed")
        return _add_item(point, "user", "You", message.text) if is_shown else (point, ())
    return _on_message(point, message) if message.role == "assistant" else (point, ())


def _on_message(point: FeedPoint, message: Message) -> _Step:
    items: list[FeedItem] = []
    for part in message.parts:
        if isinstance(part, ThinkingPart):
            shown = "redacted" if part.is_redacted else None
            point, more = _extend_newest(point, "reasoning", "Reasoning", part.text, shown)
            items += more
        elif isinstance(part, TextPart) and part.text:
            point, more = _extend_newest(point, "assistant", point.role, part.text)
            items += more
    return point, tuple(items)


def _on_interrupted(point: FeedPoint, body: ledger.Interrupted) -> _Step:
    point, said = _on_message(point, body.partial)
    point, resumed = _add_item(point, "resume", "Resumed", "The answer was cut off and is taken up")
    return point, (*said, *resumed)


def _tool_started(point: FeedPoint, body: ledger.ToolStarted) -> _Step:
    if body.id in point.pending:
        return point, ()  # another attempt of the same call
    told = msgspec.json.encode(body.input).decode()
    return _pending(point, body.id, body.tool, f"{body.tool} {told}")


def _tool_finished(point: FeedPoint, body: ledger.ToolFinished) -> _Step:
    if body.id not in point.pending:  # it never ran: it was refused, or the turn had ended
        point, _ = _pending(point, body.id, body.tool, body.tool)
    return _close_pending(point, body.id, is_good=body.succeeded, why=body.error)


def _on_answer(point: FeedPoint, question: str, body: notes.Answer) -> _Step:
    """Add an item that states who answered which question, and how."""
    if question not in point.asked:
        return point, ()
    told = f"{body.by} answered {body.choice} to {point.asked[question]}"
    left = {id: call for id, call in point.asked.items() if id != question}
    point = replace(point, asked=left)
    return _add_item(point, "event", "Answered", f"{told}: {body.note}" if body.note else told)


def _model_called(point: FeedPoint, body: ledger.ModelCalled) -> _Step:
    if body.purpose != "summary" or COMPACTION in point.pending:
        return point, ()
    return _pending(point, COMPACTION, COMPACTION, "Compacting the conversation")


def _model_finished(point: FeedPoint, body: ledger.ModelFinished) -> _Step:
    if body.error is None or COMPACTION not in point.pending or body.wait_s is not None:
        return point, ()
    return _close_pending(point, COMPACTION, is_good=False, why=body.error)


def _on_compaction(point: FeedPoint, _: Compaction) -> _Step:
    if COMPACTION not in point.pending:
        return point, ()
    return _close_pending(point, COMPACTION, is_good=True, why=None)


def _on_import(point: FeedPoint, body: notes.RoleImported) -> _Step:
    """Add the items that the feed had before the import, with their original ids."""
    items = tuple(msgspec.convert(item, FeedItem) for item in body.feed)
    numbers = [int(n) for item in items if (n := item.id.rpartition("_")[2]).isdecimal()]
    return replace(point, open=None, count=max((point.count, *numbers))), items


# ---------------------------------------------------------------- items


def _add_item(point: FeedPoint, type: FeedItemType, label: str, text: str) -> _Step:
    item = FeedItem(f"{point.role}_{point.count + 1}", type, label, text)
    return replace(point, count=point.count + 1, open=None), (item,)


def _extend_newest(
    point: FeedPoint,
    type: Literal["assistant", "reasoning"],
    label: str,
    text: str,
    shown: Literal["redacted"] | None = None,
) -> _Step:
    """Add `text` to the newest item if this item has the same type, or else to a new item."""
    said = point.open
    if said is not None and said.type == type and said.reasoning_display == shown:
        item = replace(said, text=f"{said.text}\n\n{text}")
    else:
        point, (item,) = _add_item(point, type, label, text)
        item = replace(item, reasoning_display=shown)
    return replace(point, open=item), (item,)


def _pending(point: FeedPoint, key: str, label: str, text: str) -> _Step:
    point, (item,) = _add_item(point, "tool", label, text)
    return replace(point, pending=point.pending | {key: item}), (item,)


def _close_pending(point: FeedPoint, key: str, *, is_good: bool, why: str | None) -> _Step:
    """Set the outcome of a pending item without moving the item."""
    item = point.pending[key]
    text = item.text if why is None else f"{item.text}\n{why}"
    item = replace(item, type="tool-success" if is_good else "tool-error", text=text)
    kept = {other: value for other, value in point.pending.items() if other != key}
    return replace(point, pending=kept), (item,)


_APPLY: Mapping[type[object], Callable[[FeedPoint, Any], _Step]] = {
    kinds.NodeClaimed: _on_claim,
    kinds.ImprovementClaimed: _reflecting,
    kinds.NodeParked: _on_park,
    kinds.ImprovementParked: _on_park,
    kinds.RepairAsked: _repair,
    kinds.HandoffMade: _on_handoff,
    kinds.HandoffStaged: _on_staged,
    kinds.HandoffDeclined: _on_decline,
    kinds.HandoffAwaited: _on_await,
    kinds.RoleConfigured: _on_configured,
    kinds.FindingsMade: _on_finding,
    ledger.TurnStarted: _turn_started,
    Message: _message,
    ledger.Interrupted: _on_interrupted,
    ledger.ToolStarted: _tool_started,
    ledger.ToolFinished: _tool_finished,
    ledger.ModelCalled: _model_called,
    ledger.ModelFinished: _model_finished,
    Compaction: _on_compaction,
    notes.RoleImported: _on_import,
}
