from __future__ import annotations

import msgspec

from perdure.context import prompts
from perdure.context.emission import Emitted, emit
from perdure.session.fold import BranchState, ContextWindow
from perdure.session.kinds import (
    BranchSummary,
    Compaction,
    Custom,
    CustomMessage,
    ModelChange,
    ThinkingChange,
)
from perdure.session.messages import (
    Message,
    TextPart,
    UnknownPart,
    Usage,
    assistant,
    tool_result,
    user,
)
from tests.fakes.tree_log import TreeLog, window_on

USAGE = Usage(1_000)


def texts(said: Emitted) -> list[str]:
    return [each.message.text for each in said.messages]


def test_context_of_a_branch_without_compaction_contains_the_whole_branch() -> None:
    said = emit(window_on(user("a"), assistant("b"), tool_result("1", "c"), user("d")))
    assert texts(said) == ["a", "b", "c", "d"]
    assert not said.has_summary
    assert [each.entry_id for each in said.messages] == ["s/0", "s/1", "s/2", "s/3"]


def test_context_contains_no_settings_and_no_extension_state() -> None:
    """Scenario 12: labels are side entries, so a window cannot contain them."""
    said = emit(
        window_on(user("a"), ModelChange("openai:x"), ThinkingChange("low"), Custom("note"))
    )
    assert texts(said) == ["a"]
    assert said.skipped_count == 0


def test_custom_message_is_sent_as_user_message_unless_excluded() -> None:
    said = emit(
        window_on(
            CustomMessage("shell", (TextPart("ls"),), is_displayed=False),
            CustomMessage("shell", (TextPart("secret"),), in_context=False),
        )
    )
    assert [each.message for each in said.messages] == [user("ls")]


def test_branch_summaries_are_quoted_unless_blank() -> None:
    said = emit(window_on(BranchSummary("went wrong\n"), BranchSummary(" ")))
    assert texts(said) == [f"{prompts.BRANCH_LEAD_IN}\n\n<summary>\nwent wrong\n</summary>"]


def test_summary_precedes_kept_entries_and_later_entries() -> None:
    log = TreeLog()
    log.append(user("old"))
    kept = log.append(user("kept"))
    compaction = log.append(Compaction("in short", kept))
    log.append(user("new"))
    said = emit(log.window())
    summary, *rest = texts(said)
    assert summary == f"{prompts.COMPACTION_LEAD_IN}\n\n<summary>\nin short\n</summary>"
    assert rest == ["kept", "new"]
    assert said.has_summary
    assert said.messages[0].entry_id == compaction


def test_context_contains_only_the_summary_of_the_newest_compaction() -> None:
    log = TreeLog()
    first, second, _ = log.extend(user("1"), user("2"), user("3"))
    log.append(Compaction("first summary", first))
    log.append(Compaction("second summary", second))
    log.append(user("4"))
    said = texts(emit(log.window()))
    assert "second summary" in said[0]
    assert said[1:] == ["2", "3", "4"]
    assert not any("first summary" in text for text in said)


def test_compaction_that_keeps_all_messages_adds_its_summary_before_them() -> None:
    log = TreeLog()
    first, _ = log.extend(user("a"), assistant("b"))
    log.append(Compaction("so far", first))
    assert texts(emit(log.window()))[1:] == ["a", "b"]


def test_compaction_on_another_branch_does_not_change_the_context() -> None:
    log = TreeLog()
    root, answer = log.extend(user("a"), assistant("b"))
    log.append(Compaction("of branch A", answer), parent=answer)
    log.append(user("B"), parent=root)
    assert texts(emit(log.window())) == ["a", "B"]


def test_context_of_an_entry_with_a_missing_parent_begins_at_that_entry() -> None:
    log = TreeLog()
    log.append(user("elsewhere"))
    log.append(user("orphan"), parent="lost/9")
    log.append(assistant("reply"))
    assert texts(emit(log.window())) == ["orphan", "reply"]


def test_compaction_without_a_first_kept_entry_keeps_no_entry() -> None:
    log = TreeLog()
    log.append(user("a"))
    log.append(Compaction("all of it", None))
    log.append(user("b"))
    assert texts(emit(log.window()))[1:] == ["b"]


def test_messages_retained_by_a_compaction_follow_its_summary() -> None:
    log = TreeLog()
    log.append(user("old"))
    tail = (user("tail"), assistant("answer", usage=USAGE))
    compaction = log.append(Compaction("so far", None, retained=tail))
    log.append(user("new"))
    said = emit(log.window())
    assert texts(said)[1:] == ["tail", "answer", "new"]
    assert said.messages[2].entry_id == compaction
    assert said.messages[2].message.usage is None


def test_messages_retained_by_compaction_replace_its_kept_entries() -> None:
    log = TreeLog()
    kept = log.append(user("kept"))
    log.append(Compaction("so far", kept, retained=(user("tail"),)))
    assert texts(emit(log.window()))[1:] == ["tail"]


def test_empty_compaction_still_hides_entries() -> None:
    log = TreeLog()
    log.append(user("old"))
    kept = log.append(user("kept"))
    log.append(Compaction("  ", kept))
    said = emit(log.window())
    assert texts(said) == ["kept"]
    assert not said.has_summary


def test_undone_compaction_has_no_effect() -> None:
    log = TreeLog()
    _, kept = log.extend(user("a"), user("b"))
    log.undone.add(log.append(Compaction("gone", kept)))
    log.append(user("c"))
    assert texts(emit(log.window())) == ["a", "b", "c"]


def test_messages_before_the_newest_compaction_have_no_usage() -> None:
    log = TreeLog()
    kept = log.append(user("kept"))
    log.append(assistant("before", usage=USAGE))
    log.append(Compaction("so far", kept))
    log.append(assistant("after", usage=USAGE))
    usages = [each.message.usage for each in emit(log.window()).messages]
    assert usages == [None, None, None, USAGE]


def test_messages_after_an_undone_compaction_have_no_usage() -> None:
    """The usage was reported for the smaller context after the compaction."""
    log = TreeLog()
    _, kept, _ = log.extend(user("a"), user("b"), assistant("before", usage=USAGE))
    log.undone.add(log.append(Compaction("gone", kept)))
    log.append(assistant("after", usage=Usage(10)))
    usages = [each.message.usage for each in emit(log.window()).messages]
    assert usages == [None, None, USAGE, None]


def test_unreadable_entries_are_counted_and_readable_entries_are_emitted() -> None:
    log = TreeLog()
    log.append(user("a"))
    log.append_raw("opaque", b"\xff")
    log.append_raw("hologram", b"{}")
    log.append_raw("message", b'{"role":"user","parts":[]}', v=99)
    log.append_raw("message", b"[]")
    log.append(Message("user", (UnknownPart(msgspec.Raw(b'{"type":"?"}')), TextPart("b"))))
    said = emit(log.window())
    assert texts(said) == ["a", "b"]
    assert said.skipped_count == 5


def test_unreadable_compaction_is_counted_as_skipped() -> None:
    log = TreeLog()
    log.append(user("a"))
    log.append_raw("compaction", b'{"summary":"from the future"}', v=99)
    log.append(user("b"))
    said = emit(log.window())
    assert texts(said) == ["b"]
    assert said.skipped_count == 1


def test_summary_is_sent_if_its_compaction_is_before_the_window() -> None:
    log = TreeLog()
    log.append(Compaction("so far"))
    after = log.append(user("a"))
    window = ContextWindow(
        leaf=log.leaf,
        entries=(log.by_id[after],),
        state=BranchState(compaction=log.entries[0]),
        hidden=1,
    )
    assert texts(emit(window))[1:] == ["a"]
