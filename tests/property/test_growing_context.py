"""A conversation extended entry by entry gives the same prompt as the window that it represents."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.context.build import History, build_context
from perdure.context.incremental.conversation import Conversation, conversation_of
from perdure.context.incremental.prompt import prompt_of
from perdure.context.pins import with_pins
from perdure.models.stream import call_ids
from perdure.session.entries import Entry
from perdure.session.fold import ContextWindow
from perdure.session.ids import EntryId
from perdure.session.kinds import MESSAGE, Custom, CustomMessage
from perdure.session.messages import Message
from tests.fakes.random_logs import messages, random_logs
from tests.fakes.tree_log import TreeLog

LENGTHENING = (MESSAGE, Custom.kind, CustomMessage.kind)
HISTORIES: list[History] = ["full", "full", "text_only"]

histories = st.sampled_from(HISTORIES)
scales = st.sampled_from([0.25, 1.0, 1.37, 4.0])
budgets = st.none() | st.integers(-5, 1_500)
pins_of_logs = st.lists(st.integers(0, 40), max_size=3)


def assert_same(
    conversation: Conversation, window: ContextWindow, budget: int | None, scale: float
) -> None:
    history = conversation.history
    asked = build_context(window, budget_tokens=budget, scale=scale, history=history)
    prompt = prompt_of(conversation, budget_tokens=budget, scale=scale)
    said = tuple(each.message for each in asked.messages)
    assert prompt.messages == said
    assert prompt.tokens == asked.tokens
    assert all(call_id in prompt.call_ids for call_id in call_ids(said))
    assert conversation.leaf == window.leaf
    assert conversation.state == window.state


def followed(
    before: Conversation, leaf: EntryId | None, entry: Entry, window: ContextWindow
) -> Conversation:
    """Extend the conversation by `entry` if possible; otherwise build it from `window`."""
    found = None
    is_next = entry.parent_id == leaf and entry.kind in LENGTHENING
    if is_next and entry.id not in window.pins:
        found = before.extend([entry])
    return found or conversation_of(window, before.history)


@given(random_logs(), histories, scales, budgets, pins_of_logs)
def test_prompt_extended_by_each_entry_equals_the_prompt_of_all_entries(
    log: TreeLog, history: History, scale: float, budget: int | None, pins: list[int]
) -> None:
    leaf, ids = None, list(log.by_id)
    pinned = frozenset(ids[n] for n in pins if n < len(ids))

    def window_at(end: EntryId | None) -> ContextWindow:
        window = log.window(end)
        return with_pins(window, log.path(end), pinned) if pinned else window

    conversation = conversation_of(window_at(None), history)
    for entry in log.by_id.values():
        window = window_at(entry.id)
        conversation = followed(conversation, leaf, entry, window)
        assert_same(conversation, window, budget, scale)
        leaf = entry.id


@given(st.lists(messages, max_size=60), st.integers(1, 12), histories, scales, budgets)
def test_conversation_extended_in_batches_equals_one_built_in_one_step(
    said: list[Message], at_once: int, history: History, scale: float, budget: int | None
) -> None:
    log = TreeLog()
    conversation = conversation_of(log.window(), history)
    for start in range(0, len(said), at_once):
        log.extend(*said[start : start + at_once])
        more = conversation.extend(log.entries[start:])
        assert more is not None
        conversation = more
        assert_same(conversation, log.window(), budget, scale)
