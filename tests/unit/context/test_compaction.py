from __future__ import annotations

import pytest

from perdure.context import prompts
from perdure.context.build import build_context
from perdure.context.compaction import (
    CompactionPlan,
    plan_compaction,
    plan_node_compaction,
    should_compact,
)
from perdure.context.tokens import context_tokens
from perdure.session.ids import EntryId
from perdure.session.kinds import (
    BranchSummary,
    Compaction,
    Custom,
    CustomMessage,
    ModelChange,
    TreeBody,
)
from perdure.session.messages import (
    Message,
    TextPart,
    Usage,
    assistant,
    tool_call,
    tool_result,
    user,
)
from tests.fakes.tree_log import TreeLog, window_on

BIG = "x" * 400  # 100 tokens


def plan_of(*said: Message | TreeBody, keep: int) -> CompactionPlan | None:
    return plan_compaction(window_on(*said), keep_recent_tokens=keep)


def plan_for(log: TreeLog, keep: int) -> CompactionPlan:
    plan = plan_compaction(log.window(), keep_recent_tokens=keep)
    assert plan is not None
    return plan


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages]


# When --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "window", "is_full"),
    [(80_000, 100_000, False), (80_001, 100_000, True), (10**9, None, False), (0, 100_000, False)],
)
def test_context_above_four_fifths_of_the_model_window_needs_compaction(
    tokens: int, window: int | None, is_full: bool
) -> None:
    assert should_compact(tokens, window) is is_full


@pytest.mark.parametrize(("tokens", "is_full"), [(83_616, False), (83_617, True)])
def test_reserved_tokens_decide_when_compaction_starts(tokens: int, is_full: bool) -> None:
    assert should_compact(tokens, 100_000, reserve_tokens=16_384) is is_full


def test_compaction_starts_at_the_configured_share_of_the_window() -> None:
    assert should_compact(51, 100, trigger=0.5)
    assert not should_compact(51, 100, trigger=0.9)


def test_token_usage_from_before_a_compaction_triggers_no_second_compaction() -> None:
    log = TreeLog()
    log.append(user("old"))
    kept = log.append(assistant("big", usage=Usage(190_000)))
    log.append(Compaction("so far", kept))
    log.append(user("next"))
    assert not should_compact(build_context(log.window()).tokens, 200_000)


def test_failed_answer_without_token_usage_triggers_no_compaction() -> None:
    failed = Message("assistant", (), stop_reason="error", error="400", usage=Usage(190_000))
    assert not should_compact(context_tokens([user("hi"), failed]), 200_000)


# Whether -----------------------------------------------------------------------------------------


def test_compaction_of_an_empty_session_has_no_plan() -> None:
    assert plan_compaction(TreeLog().window()) is None


def test_context_without_new_messages_since_compaction_gives_no_plan() -> None:
    log = TreeLog()
    _, kept = log.extend(user(BIG), user(BIG))
    log.append(Compaction("so far", kept))
    assert plan_compaction(log.window(), keep_recent_tokens=1) is None
    log.extend(ModelChange("openai:x"), Custom("note"))
    assert plan_compaction(log.window(), keep_recent_tokens=1) is None


def test_undone_compaction_is_ignored() -> None:
    log = TreeLog()
    _, kept = log.extend(user(BIG), user(BIG))
    log.undone.add(log.append(Compaction("gone", kept)))
    assert plan_for(log, 1).first_kept == kept


def test_context_smaller_than_the_kept_size_needs_no_compaction() -> None:
    assert plan_of(user("a"), assistant("b"), keep=20_000) is None
    assert plan_of(user(BIG), user(BIG), keep=201) is None


def test_compaction_that_would_keep_the_first_message_gives_no_plan() -> None:
    assert plan_of(tool_result("lost", "a"), user("b"), keep=20_000) is None
    assert plan_of(user(BIG), assistant(BIG), keep=200) is None


# Where -------------------------------------------------------------------------------------------


def test_newest_messages_within_the_limit_are_not_summarised() -> None:
    log = TreeLog()
    _, _, kept, _ = log.extend(user(BIG), assistant(BIG), user(BIG), assistant(BIG))
    plan = plan_for(log, 200)
    assert plan.first_kept == kept
    assert texts(plan.history) == [BIG, BIG]
    assert plan.turn_prefix == ()
    assert plan.previous_summary is None
    assert plan.tokens_before == 400


def test_token_scale_affects_which_messages_a_compaction_keeps() -> None:
    said = [user(BIG), assistant(BIG), user(BIG), assistant(BIG)]
    window = window_on(*said)
    plan = plan_compaction(window, keep_recent_tokens=200, scale=2.0)
    assert plan is not None
    assert plan.first_kept == "s/3"


def test_kept_part_never_starts_with_tool_result() -> None:
    log = TreeLog()
    log.extend(user(BIG), assistant(tool_call("1", "a")), tool_result("1", BIG))
    kept = log.append(assistant("done"))
    assert plan_for(log, 50).first_kept == kept


def test_oversized_results_at_end_do_not_prevent_compaction() -> None:
    """Other tools find no cut after oversized results, so these tools remove no message."""
    log = TreeLog()
    log.extend(user(BIG), assistant(BIG), user("go"))
    call = log.append(assistant(tool_call("1", "a"), tool_call("2", "b")))
    log.extend(tool_result("1", BIG * 100), tool_result("2", BIG * 100))
    plan = plan_for(log, 500)
    assert plan.first_kept == call
    assert texts(plan.history) == [BIG, BIG]
    assert texts(plan.turn_prefix) == ["go"]


def test_late_result_stays_with_its_call() -> None:
    log = TreeLog()
    log.append(user(BIG))
    call, _, _ = log.extend(assistant(tool_call("1", "a")), user("steering"), tool_result("1", BIG))
    assert plan_for(log, 101).first_kept == call
    after = log.append(user("more"))
    assert plan_for(log, 102).first_kept == after


def test_settings_directly_before_the_first_kept_message_are_kept() -> None:
    log = TreeLog()
    log.extend(user(BIG), assistant(BIG))
    first = log.append(ModelChange("openai:x"))
    log.extend(Custom("note"), user(BIG))
    assert plan_for(log, 100).first_kept == first


def test_compaction_entry_itself_is_not_kept_by_the_next_compaction() -> None:
    log = TreeLog()
    kept = log.append(user(BIG))
    log.append(Compaction("so far", kept))
    new = log.append(user(BIG))
    plan = plan_for(log, 100)
    assert plan.first_kept == new
    assert texts(plan.history) == [BIG]


def test_compaction_that_begins_at_an_answer_splits_its_turn() -> None:
    log = TreeLog()
    log.extend(user("old"), assistant("done"), user("request"))
    log.extend(assistant(BIG, tool_call("1", "a")), tool_result("1", BIG))
    kept = log.append(assistant(BIG, tool_call("2", "a")))
    log.append(tool_result("2", BIG))
    plan = plan_for(log, 200)
    assert plan.first_kept == kept
    assert texts(plan.history) == ["old", "done"]
    assert texts(plan.turn_prefix) == ["request", BIG, BIG]


@pytest.mark.parametrize(
    "start",
    [
        user("start"),
        CustomMessage("shell", (TextPart("start"),)),
        BranchSummary("start"),
    ],
)
def test_turn_can_start_with_any_entry_sent_as_user_message(start: Message | TreeBody) -> None:
    log = TreeLog()
    log.extend(user("old"), assistant("done"), start, assistant(BIG))
    kept = log.append(assistant(BIG))
    plan = plan_for(log, 100)
    assert plan.first_kept == kept
    assert len(plan.history) == 2
    assert "start" in plan.turn_prefix[0].text


def test_compaction_keeps_custom_messages_with_their_answer() -> None:
    log = TreeLog()
    log.extend(user(BIG), assistant("done"))
    first = log.append(BranchSummary("tried"))
    log.extend(CustomMessage("shell", (TextPart("ls"),)), assistant(BIG))
    plan = plan_for(log, 100)
    assert plan.first_kept == first
    assert texts(plan.history) == [BIG, "done"]
    assert plan.turn_prefix == ()


def test_turn_whose_user_message_is_missing_is_summarised_as_history() -> None:
    plan = plan_of(assistant(BIG), assistant(BIG), keep=100)
    assert plan is not None
    assert texts(plan.history) == [BIG]
    assert plan.turn_prefix == ()


def test_compaction_of_a_single_turn_summarises_the_start_of_the_turn() -> None:
    plan = plan_of(user("go"), assistant(BIG), assistant(BIG), keep=100)
    assert plan is not None
    assert plan.history == ()
    assert texts(plan.turn_prefix) == ["go", BIG]


def test_compaction_that_keeps_no_message_summarises_the_whole_conversation() -> None:
    plan = plan_of(user("a"), assistant("b"), keep=0)
    assert plan is not None
    assert plan.first_kept is None
    assert texts(plan.history) == ["a", "b"]


def test_context_that_contains_only_tool_results_cannot_be_compacted() -> None:
    assert plan_of(tool_result("1", BIG), tool_result("2", BIG), keep=50) is None


def test_messages_outside_context_are_not_summarised() -> None:
    plan = plan_of(
        user(BIG), CustomMessage("shell", (TextPart("no"),), in_context=False), user(BIG), keep=100
    )
    assert plan is not None
    assert texts(plan.history) == [BIG]


# Again -------------------------------------------------------------------------------------------


def test_messages_kept_by_a_compaction_are_summarised_by_the_next_compaction() -> None:
    """Issue 2608 of pi: the messages that the first compaction kept were lost in the second."""
    log = TreeLog()
    log.append(user("before"))
    kept = log.append(user("kept by the first"))
    log.append(Compaction("first summary", kept))
    log.extend(assistant("after"), user(BIG))
    plan = plan_for(log, 100)
    assert texts(plan.history) == ["kept by the first", "after"]
    assert plan.previous_summary == "first summary"


def test_next_compaction_can_keep_entries_from_before_the_previous_compaction() -> None:
    log = TreeLog()
    log.append(user("before"))
    first, second = log.extend(user("one"), user(BIG))
    log.append(Compaction("first summary", first))
    log.append(user(BIG))
    plan = plan_for(log, 200)
    assert plan.first_kept == second
    assert texts(plan.history) == ["one"]
    log.append(Compaction("second summary", plan.first_kept))
    assert [m.message.role for m in build_context(log.window()).messages] == ["user"]


def test_retained_messages_are_summarised_by_the_next_compaction() -> None:
    log = TreeLog()
    log.append(Compaction("first", None, retained=(user("tail"), assistant("reply"))))
    log.extend(user(BIG), assistant("x"), user(BIG))
    plan = plan_for(log, 100)
    assert texts(plan.history) == ["tail", "reply", BIG, "x"]


def test_retained_messages_count_toward_the_number_of_kept_tokens() -> None:
    log = TreeLog()
    log.append(Compaction("first", None, retained=(user(BIG),)))
    new = log.append(user(BIG))
    assert plan_compaction(log.window(), keep_recent_tokens=201) is None
    plan = plan_for(log, 150)
    assert (plan.first_kept, texts(plan.history)) == (new, [BIG])


def test_result_of_retained_call_stays_with_call() -> None:
    log = TreeLog()
    log.append(Compaction("first", None, retained=(user("a"), assistant(tool_call("1", "x")))))
    log.extend(user("steering"), tool_result("1", BIG))
    kept = log.append(assistant(BIG))
    assert plan_for(log, 201).first_kept == kept


def test_chained_compactions_leave_no_result_without_its_call() -> None:
    """#1764, #4570, #6832"""
    log = TreeLog()
    for turn in range(12):
        log.append(user(f"{turn} {BIG}"))
        log.append(assistant(tool_call(f"{turn}a", "x"), tool_call(f"{turn}b", "x")))
        log.extend(tool_result(f"{turn}b", BIG), tool_result(f"{turn}a", BIG))
        log.append(assistant(f"done {turn}"))
        plan = plan_compaction(log.window(), keep_recent_tokens=150 + 40 * turn)
        if plan is not None:
            log.append(Compaction(f"summary {turn}", plan.first_kept))
        said = str(build_context(log.window()).messages)
        assert prompts.RESULT_WITHOUT_CALL not in said
        assert prompts.CALL_INTERRUPTED not in said


# Files -------------------------------------------------------------------------------------------


def test_compaction_lists_files_of_removed_calls_and_earlier_summaries() -> None:
    log = TreeLog()
    root = log.append(user("a"))
    log.append(Compaction("first", root, read_files=("old.py",), modified_files=("done.py",)))
    log.append(BranchSummary("tried", read_files=("branch.py",), modified_files=("tried.py",)))
    log.append(assistant(tool_call("1", "Read", {"file_path": "old2.py"})))
    log.append(tool_result("1", "text"))
    log.append(assistant(tool_call("2", "edit", {"path": "old.py"})))
    log.append(tool_result("2", "ok"))
    log.append(assistant(tool_call("3", "write", {"path": "kept.py"}), "x" * 400))
    plan = plan_for(log, 100)
    assert plan.read_files == ("branch.py", "old2.py")
    assert plan.modified_files == ("done.py", "old.py", "tried.py")


def test_compaction_keeps_twenty_thousand_tokens_by_default() -> None:
    log = TreeLog()
    ids: list[EntryId] = []
    for _ in range(5):
        ids += log.extend(user("x" * 39_996), assistant("1234"))  # 10,000 tokens
    plan = plan_compaction(log.window())
    assert plan is not None
    assert plan.first_kept == ids[6]


# A node of a flow --------------------------------------------------------------------------------


def test_node_compaction_summarises_only_the_node() -> None:
    log = TreeLog()
    log.extend(user("earlier"), assistant("done"))
    begins = log.append(user("now this"))
    log.extend(assistant("", tool_call("c", "read")), tool_result("c", "seen"), assistant("so"))
    plan = plan_node_compaction(log.window(), begins)
    assert plan is not None
    assert texts(plan.history) == ["now this", "", "seen", "so"]
    assert (plan.first_kept, plan.turn_prefix, plan.previous_summary) == (None, (), None)


def test_node_compaction_keeps_only_the_unanswered_message() -> None:
    log = TreeLog()
    begins = log.append(user("now this"))
    log.append(assistant("so"))
    asked = log.append(user("and that?"))
    plan = plan_node_compaction(log.window(), begins)
    assert plan is not None
    assert texts(plan.history) == ["now this", "so"]
    assert plan.first_kept == asked


def test_node_compaction_without_a_known_start_summarises_everything() -> None:
    log = TreeLog()
    log.extend(user("a"), assistant("b"))
    plan = plan_node_compaction(log.window(), EntryId("s/99"))
    assert plan is not None
    assert texts(plan.history) == ["a", "b"]
    log.append(Compaction("So far."))
    assert plan_node_compaction(log.window(), None) is None
    begins = log.append(user("c"))
    assert plan_node_compaction(log.window(), begins) is None
    log.append(assistant("d"))
    plan = plan_node_compaction(log.window(), begins)
    assert plan is not None
    assert (texts(plan.history), plan.previous_summary) == (["c", "d"], None)
