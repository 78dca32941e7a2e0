"""The context within a budget, built from the end of a window.

`build_context` of the whole window is the definition. The end gives the same context where it holds
everything that decides: more than the budget or the most messages take, a call for each result,
all that is pinned, and the newest reported usage as far as that counts. Only the ids of calls may
differ: an id that a branch repeats is changed only if both messages were read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from perdure.context.build import (
    Context,
    History,
    context_of,
    is_report_out_of_reach,
    text_only,
    trimmed,
)
from perdure.context.emission import ContextMessage, emitted, readable_body, retained_messages
from perdure.context.pairing import repaired
from perdure.context.pinning import with_pins
from perdure.context.tokens import context_tokens, estimate_tokens, reported_tokens
from perdure.session.fold import ContextWindow, end_of
from perdure.session.ids import EntryId
from perdure.session.messages import Message, ToolResultPart


def context_of_end(
    window: ContextWindow,
    pins: frozenset[EntryId] = frozenset(),
    *,
    budget_tokens: int | None,
    scale: float = 1.0,
    history: History = "full",
    model: str | None = None,
    max_messages: int | None = None,
) -> Context | None:
    """The context of the window that `window` is the end of; None if more of it has to be read.

    `pins` are the pinned entries, on whatever branch. The rest is as for `build_context`.
    """
    if retained_messages(window):
        return None  # they stand between the summary and the entries
    end = end_of(window, len(window.entries) - _first_question(window))
    if not end.entries or not pins <= {entry.id for entry in end.entries}:
        return None
    end = with_pins(end, end.entries, pins)
    said = emitted(end)
    messages = said.messages if history == "full" else text_only(said.messages)
    if _has_result_without_call(messages):
        return None
    paired = repaired(messages)
    sizes = [estimate_tokens(each.message, scale) for each in paired]
    budget, first = math.inf if budget_tokens is None else budget_tokens, int(said.has_summary)
    reported = context_tokens([each.message for each in paired], scale)
    trim = trimmed(
        paired, sizes, reported, budget, pinned=first, pins=end.pins, max_messages=max_messages
    )
    if trim.first is None:
        return None
    newest = max((n for n, each in enumerate(paired) if reported_tokens(each.message)), default=-1)
    if newest < 0:
        is_full = sum(sizes[first:]) >= budget
        is_known = is_full or (max_messages is not None and len(paired) - first >= max_messages)
    else:
        is_known = sum(sizes) >= reported or is_report_out_of_reach(
            paired, sizes, budget, max_messages
        )
    return context_of(end, said, trim, model) if is_known else None


def _first_question(window: ContextWindow) -> int:
    """The position of the first message of the user that follows one of another role."""
    before: str | None = None
    for place, entry in enumerate(window.entries):
        message = readable_body(entry)
        if not isinstance(message, Message):
            continue
        if message.role == "user" and before not in (None, "user"):
            return place
        before = message.role
    return len(window.entries)


def _has_result_without_call(messages: Sequence[ContextMessage]) -> bool:
    """Whether there is a result in `messages` whose call may stand before them."""
    called: set[str] = set()
    for each in messages:
        if each.message.role == "assistant":
            called.update(call.id for call in each.message.tool_calls)
        for part in each.message.parts:
            if isinstance(part, ToolResultPart) and part.call_id not in called:
                return True
    return False
