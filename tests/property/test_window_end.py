"""The context within a budget is the same from the end of a window as from all of it."""

from __future__ import annotations

import msgspec
from hypothesis import event, given
from hypothesis import strategies as st

from perdure.context.build import Context, History, build_context
from perdure.context.emission import ContextMessage
from perdure.context.pinning import with_pins
from perdure.context.window_end import context_of_end
from perdure.session.fold import end_of
from perdure.session.messages import Message, Part, ToolCallPart, ToolResultPart
from tests.fakes.random_logs import random_logs
from tests.fakes.tree_log import TreeLog

HISTORIES: list[History] = ["full", "full", "text_only"]


def with_numbered_calls(context: Context) -> Context:
    """`context` with its calls numbered: ids only have to differ among what is sent."""
    numbers: dict[str, str] = {}

    def numbered(part: Part) -> Part:
        if isinstance(part, ToolCallPart):
            number = numbers.setdefault(part.id, str(len(numbers)))
            return msgspec.structs.replace(part, id=number)
        if isinstance(part, ToolResultPart):
            return msgspec.structs.replace(part, call_id=numbers[part.call_id])
        return part

    def message(each: Message) -> Message:
        return msgspec.structs.replace(each, parts=tuple(numbered(part) for part in each.parts))

    messages = tuple(
        ContextMessage(message(each.message), each.entry_id, each.merged)
        for each in context.messages
    )
    return msgspec.structs.replace(context, messages=messages)


@given(
    log=random_logs(),
    history=st.sampled_from(HISTORIES),
    limits=st.tuples(
        st.none() | st.integers(1, 30) | st.integers(1, 3_000), st.none() | st.integers(1, 6)
    ),
    pins=st.lists(st.integers(0, 40), max_size=2),
    data=st.data(),
)
def test_context_of_end_equals_context_of_whole_window(
    log: TreeLog,
    history: History,
    limits: tuple[int | None, int | None],
    pins: list[int],
    data: st.DataObject,
) -> None:
    ids, (budget, most) = list(log.by_id), limits
    leaf = data.draw(st.sampled_from([None, *ids]))
    pinned = frozenset(ids[n] for n in pins if n < len(ids))
    window = log.window(leaf)
    whole = build_context(
        with_pins(window, log.path(leaf), pinned),
        budget_tokens=budget,
        history=history,
        max_messages=most,
    )
    for limit in range(1, len(window.entries)):
        end = end_of(window, limit)
        found = context_of_end(
            end, pinned, budget_tokens=budget, history=history, max_messages=most
        )
        event("enough" if found else "more")
        if found is not None:
            assert with_numbered_calls(found) == with_numbered_calls(whole)
