"""Build a context within a budget from the end of a window.

`build_context` of the whole window defines the correct result. The end of the window gives the same
context under three conditions: it contains more messages than the limits allow, it contains the
call of each of its tool results, and all pinned entries are known. Only the ids of tool calls can
differ from the result for the whole window, because a repeated id is changed only if both of its
calls were read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from perdure.context.build import (
    Context,
    context_of,
    end_of_turns,
    leading,
    text_only,
    trim_history,
)
from perdure.context.emission import ContextMessage, emit, retained_messages
from perdure.context.pins import with_pins
from perdure.context.tokens import context_tokens, estimate_tokens
from perdure.context.tool_pairs import repair_pairs
from perdure.session.codec import readable
from perdure.session.fold import ContextWindow, Placed, end_of
from perdure.session.ids import EntryId
from perdure.session.ledger import History
from perdure.session.messages import Message, ToolResultPart


def context_of_end(
    window: ContextWindow,
    pins: frozenset[EntryId] = frozenset(),
    near: Sequence[Placed] = (),
    *,
    budget_tokens: int | None,
    history: History = "full",
    max_messages: int | None = None,
) -> Context | None:
    """Build a context from the end `window` of a longer window; None if more must be read.

    `pins` contains the ids of the pinned entries of all branches. `near` contains the pinned
    entries of this branch that precede the first user question in `window`, and the tool calls and
    results that belong to these pinned entries. `build_context` explains the other arguments.
    """
    end = from_question(window)
    if not end.entries:
        return None
    joined = _with_pins(end, pins, near)
    if _has_hidden_ties(joined, frozenset(entry.id for entry in end.entries)):
        return None
    said = emit(joined)
    known = {entry.id for entry in end.entries}
    own = [each for each in said.messages if each.entry_id in known]
    if history == "text_only" and near and not end_of_turns(own):
        return None  # unknown which earlier turns are completed, and so what is dropped
    if _has_result_without_call(own if history == "full" else text_only(own)):
        return None
    paired = repair_pairs(said.messages if history == "full" else text_only(said.messages))
    first = leading(paired, joined.pinned, has_summary=said.has_summary)
    question = next((n for n in range(first, len(paired)) if paired[n].entry_id in known), None)
    if question is None:
        return None
    sizes = [estimate_tokens(each.message) for each in paired]
    budget = math.inf if budget_tokens is None else budget_tokens
    is_most = max_messages is not None and len(paired) - question > max_messages
    if sum(sizes[question + 1 :]) < budget and not is_most:
        return None  # earlier messages may be sent, or correct the estimates
    reported = context_tokens([each.message for each in paired])
    trim = trim_history(
        paired, sizes, reported, budget, pinned=first, pins=joined.pins, max_messages=max_messages
    )
    if not any(each is trim.first for each in paired[question + 1 :]):
        return None
    return context_of(joined, said, trim, None)


def from_question(window: ContextWindow) -> ContextWindow:
    """Return `window` from the first user message that follows another role."""
    return end_of(window, len(window.entries) - _first_question(window))


def _with_pins(
    end: ContextWindow, pins: frozenset[EntryId], near: Sequence[Placed]
) -> ContextWindow:
    """Return `end` with the pinned entries in `near`.

    If a compaction hides a pinned entry, this entry is stored in the field `pinned`; otherwise, it
    becomes one of the first entries of the window.
    """
    path = [*(each.entry for each in near), *end.entries]
    pinned = with_pins(end, path, pins)
    wanted = [each for each in near if each.entry.id in pinned.pins]
    earlier = [each.entry for each in wanted if each.depth >= end.hidden]
    return msgspec.structs.replace(
        pinned,
        pinned=tuple(each.entry for each in wanted if each.depth < end.hidden),
        entries=(*earlier, *end.entries),
        earlier=end.earlier - len(earlier),
    )


def _has_hidden_ties(joined: ContextWindow, known: frozenset[EntryId]) -> bool:
    """Return True if the context before the entries `known` depends on unread entries.

    The result is True if the newest compaction retains messages instead of entries, and either
    `known` contains this compaction, or a pinned entry that the compaction does not hide comes
    before the entries in `known`. The result is also True if a pinned answer before `known` failed:
    the next answer, which might be unread, replaces the failed answer.
    """
    compaction = joined.state.compaction
    is_inside = compaction is not None and compaction.id in known
    if retained_messages(joined) is not None and (is_inside or len(joined.entries) > len(known)):
        return True
    before = (entry for entry in (*joined.pinned, *joined.entries) if entry.id not in known)
    said = (readable(entry) for entry in before)
    return any(isinstance(each, Message) and each.stop_reason == "error" for each in said)


def _first_question(window: ContextWindow) -> int:
    """Return the position of the first user message that follows another role."""
    before: str | None = None
    for place, entry in enumerate(window.entries):
        message = readable(entry)
        if not isinstance(message, Message):
            continue
        if message.role == "user" and before not in (None, "user"):
            return place
        before = message.role
    return len(window.entries)


def _has_result_without_call(messages: Sequence[ContextMessage]) -> bool:
    """Return True if `messages` has a result whose call might be before them."""
    called: set[str] = set()
    for each in messages:
        if each.message.role == "assistant":
            called.update(call.id for call in each.message.tool_calls)
        for part in each.message.parts:
            if isinstance(part, ToolResultPart) and part.call_id not in called:
                return True
    return False
