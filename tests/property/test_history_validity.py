"""For any log, the messages for a model violate no provider's rule and lose no text."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from perdure.context.build import Context, build_context
from perdure.context.emission import ContextMessage, emit
from perdure.context.tool_pairs import repair_pairs
from perdure.context.validity import alternating
from perdure.session.ids import EntryId
from perdure.session.messages import Message, TextPart, user
from tests.fakes.provider_rules import all_problems, sending_problems
from tests.fakes.random_logs import messages, random_logs
from tests.fakes.tree_log import TreeLog


def said_in(context: Context) -> list[Message]:
    return [each.message for each in context.messages]


def texts_of(message: Message) -> list[str]:
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    return [text for text in texts if text.strip()]


@given(random_logs())
def test_context_of_every_leaf_is_valid_for_every_provider(log: TreeLog) -> None:
    for leaf in [None, *log.by_id]:
        context = build_context(log.window(leaf))
        assert all_problems(said_in(context)) == []


@given(random_logs())
def test_context_with_user_message_can_be_sent(log: TreeLog) -> None:
    for leaf in [None, *log.by_id]:
        prompted = TreeLog("prompted", origin=log)
        prompted.undone = log.undone
        prompted.append(user("go on"), parent=leaf)
        context = build_context(prompted.window())
        assert sending_problems(said_in(context)) == []


@given(random_logs())
def test_no_user_message_in_window_is_lost(log: TreeLog) -> None:
    for leaf in log.by_id:
        window = log.window(leaf)
        context = build_context(window)
        kept = Counter(text for message in said_in(context) for text in texts_of(message))
        for each in emit(window).messages:
            if each.message.role == "user":
                said = Counter(texts_of(each.message))
                assert said <= kept


@given(random_logs(), st.integers(-5, 500), st.sampled_from([0.25, 1.0, 4.0]))
def test_any_budget_leaves_valid_nonempty_context(log: TreeLog, budget: int, scale: float) -> None:
    for leaf in log.by_id:
        window = log.window(leaf)
        whole = build_context(window, scale=scale)
        context = build_context(window, budget_tokens=budget, scale=scale)
        assert all_problems(said_in(context)) == []
        assert bool(context.messages) == bool(whole.messages)
        newest_only = [message.role for message in said_in(context)].count("user") <= 1
        assert context.tokens <= budget or newest_only
        if not context.dropped:
            assert said_in(context) == said_in(whole)


@given(random_logs(), st.integers(0, 500))
def test_text_only_history_is_valid_for_every_provider(log: TreeLog, budget: int) -> None:
    for leaf in log.by_id:
        window = log.window(leaf)
        for limit in (None, budget):
            context = build_context(window, history="text_only", budget_tokens=limit)
            assert all_problems(said_in(context)) == []


@given(st.lists(messages, max_size=12))
def test_repair_of_a_valid_history_changes_nothing(said: list[Message]) -> None:
    once = alternating(repair_pairs([ContextMessage(message, None) for message in said]))
    assert alternating(repair_pairs(once)) == once


@given(st.lists(messages, max_size=12))
def test_repaired_message_refers_to_each_entry_at_most_once(said: list[Message]) -> None:
    known = [ContextMessage(message, EntryId(f"s/{n}")) for n, message in enumerate(said)]
    for each in alternating(repair_pairs(known)):
        assert len(set(each.entry_ids)) == len(each.entry_ids)
        assert set(each.entry_ids) <= {one.entry_id for one in known}
