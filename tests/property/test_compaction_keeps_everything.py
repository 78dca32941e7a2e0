"""Repeated compactions: every message that leaves the context was summarized completely."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from perdure.context import prompts
from perdure.context.build import build_context
from perdure.context.compaction import plan_compaction
from perdure.context.emission import emit
from perdure.context.summary import summary_requests, summary_text
from perdure.session.codec import encode
from perdure.session.fold import ContextWindow
from perdure.session.kinds import Compaction
from perdure.session.messages import Message, user
from tests.fakes.provider_rules import all_problems
from tests.fakes.random_logs import messages, random_logs
from tests.fakes.tree_log import TreeLog


def contents_of(window: ContextWindow) -> Counter[bytes]:
    """Return the messages of a window, without the summary."""
    said = emit(window)
    shown = said.messages[1:] if said.has_summary else said.messages
    return counted([each.message for each in shown])


def counted(said: list[Message]) -> Counter[bytes]:
    return Counter(encode(message.parts) for message in said)


def orphans_in(window: ContextWindow) -> int:
    said = [each.message for each in build_context(window).messages]
    return sum(message.text.count(prompts.RESULT_WITHOUT_CALL) for message in said)


@given(random_logs(), st.lists(st.integers(0, 60), max_size=4), st.data())
def test_each_message_is_summarised_or_kept(
    log: TreeLog, keeps: list[int], data: st.DataObject
) -> None:
    for keep in keeps:
        before = log.window()
        plan = plan_compaction(before, keep_recent_tokens=keep)
        if plan is not None:
            replies = ["a summary that is long enough"] * len(summary_requests(plan, "m"))
            summary = summary_text(plan, replies)
            log.append(Compaction(summary, plan.first_kept, read_files=plan.read_files))
            after = log.window()
            summarised = counted([*plan.history, *plan.turn_prefix])
            assert summarised + contents_of(after) == contents_of(before)
            assert all_problems([each.message for each in build_context(after).messages]) == []
            assert orphans_in(after) <= orphans_in(before)
        for message in data.draw(st.lists(messages, max_size=3)):
            log.append(message)


@given(random_logs(), st.integers(0, 60))
def test_kept_part_does_not_start_with_tool_result(log: TreeLog, keep: int) -> None:
    for leaf in list(log.by_id):
        window = log.window(leaf)
        plan = plan_compaction(window, keep_recent_tokens=keep)
        if plan is None or plan.first_kept is None:
            continue
        ids = [entry.id for entry in window.entries]
        log.append(Compaction("a summary", plan.first_kept), parent=leaf)
        after = emit(log.window())
        assert plan.first_kept in ids
        assert after.messages[1].message.role != "tool"


@given(random_logs())
def test_context_is_not_compacted_twice_without_new_messages(log: TreeLog) -> None:
    for leaf in list(log.by_id):
        plan = plan_compaction(log.window(leaf), keep_recent_tokens=10)
        if plan is not None:
            log.append(Compaction("a summary", plan.first_kept), parent=leaf)
            assert plan_compaction(log.window(), keep_recent_tokens=1) is None


@given(random_logs())
def test_context_after_a_compaction_contains_the_newest_message(log: TreeLog) -> None:
    plan = plan_compaction(log.window(), keep_recent_tokens=5)
    if plan is not None:
        log.append(Compaction("a summary", plan.first_kept))
    log.append(user("the very newest words"))
    assert "the very newest words" in build_context(log.window()).messages[-1].message.text
