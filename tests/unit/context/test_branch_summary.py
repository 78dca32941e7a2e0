from __future__ import annotations

from perdure.context import prompts
from perdure.context.branch_summary import (
    branch_files,
    branch_summary_request,
    branch_summary_text,
)
from perdure.context.files import FileLists
from perdure.session.entries import Entry
from perdure.session.kinds import BranchSummary, Compaction, CustomMessage, ModelChange, TreeBody
from perdure.session.messages import (
    Message,
    TextPart,
    assistant,
    tool_call,
    tool_result,
    user,
)
from tests.fakes.tree_log import TreeLog

PLENTY = 100_000


def branch(*said: Message | TreeBody) -> list[Entry]:
    log = TreeLog()
    log.extend(*said)
    return log.entries


def shown(entries: list[Entry], budget: int = PLENTY) -> str:
    request = branch_summary_request(entries, "openai:x", budget_tokens=budget)
    assert request is not None
    return request.messages[0].text.partition("</conversation>")[0]


def test_request_for_a_branch_summary_contains_no_tool_results() -> None:
    entries = branch(
        user("try it"),
        assistant("trying", tool_call("1", "ls")),
        tool_result("1", "a secret listing"),
        ModelChange("openai:y"),
        CustomMessage("shell", (TextPart("pwd"),)),
        CustomMessage("shell", (TextPart("private"),), in_context=False),
        assistant("failed"),
    )
    assert shown(entries) == (
        "<conversation>\n[User]: try it\n\n[Assistant]: trying\n\n[Assistant calls]: ls()\n\n"
        "[User]: pwd\n\n[Assistant]: failed\n"
    )


def test_summary_request_asks_for_sections_and_forbids_continuing_the_chat() -> None:
    request = branch_summary_request(branch(user("a")), "openai:x", budget_tokens=9, focus="db")
    assert request is not None
    assert request.model == "openai:x"
    assert request.system == prompts.SUMMARY_SYSTEM
    assert request.max_output_tokens == 2_048
    assert request.messages[0].text.endswith(f"{prompts.SUMMARY_BRANCH}\n\n{prompts.FOCUS}db")


def test_branch_without_messages_has_no_summary() -> None:
    entries = branch(ModelChange("openai:y"), tool_result("1", "x"), user(" "))
    assert branch_summary_request(entries, "m", budget_tokens=PLENTY) is None
    assert branch_summary_request([], "m", budget_tokens=PLENTY) is None


def test_summary_request_has_the_newest_messages_that_fit() -> None:
    entries = branch(user("a" * 40), user("b" * 40), user("c" * 40))
    text = shown(entries, budget=25)
    assert "aaa" not in text
    assert text.index("bbb") < text.index("ccc")


def test_oversized_summary_is_included_only_if_budget_remains() -> None:
    summary = BranchSummary("nested " * 20)
    assert "nested" in shown(branch(user("old"), summary, user("c" * 40)), budget=12)
    assert "nested" not in shown(branch(user("old"), summary, user("c" * 40)), budget=11)


def test_messages_before_oversized_summary_are_omitted() -> None:
    entries = branch(user("old"), Compaction("so far " * 50), user("new"))
    text = shown(entries, budget=50)
    assert "so far" in text
    assert "old" not in text


def test_branch_includes_entries_before_compactions() -> None:
    entries = branch(user("before"), Compaction("so far"), user("after"))
    text = shown(entries)
    assert text.index("before") < text.index("so far") < text.index("after")


def test_oversized_newest_message_is_cut() -> None:
    text = shown(branch(user("old"), user("x" * 4_000)), budget=100)
    assert 300 < text.count("x") <= 400
    assert "old" not in text


def test_unreadable_entries_are_skipped() -> None:
    log = TreeLog()
    log.append(user("a"))
    log.append_raw("hologram", b"{}")
    log.append_raw("message", b"{}", v=99)
    assert "[User]: a" in shown(log.entries)


def test_file_lists_of_a_branch_include_the_files_of_earlier_summaries() -> None:
    entries = branch(
        BranchSummary("nested", read_files=("n.py",), modified_files=("m.py",)),
        Compaction("so far", read_files=("c.py",)),
        assistant(tool_call("1", "read", {"path": "r.py"}), tool_call("2", "edit", {"path": "e"})),
    )
    files = FileLists(read=("c.py", "n.py", "r.py"), modified=("e", "m.py"))
    assert branch_files(entries) == files
    text = branch_summary_text(entries, " It failed. \n")
    assert text.startswith(f"{prompts.BRANCH_PREAMBLE}\n\nIt failed.\n\n<read-files>\nc.py\n")
    assert text.endswith("<modified-files>\ne\nm.py\n</modified-files>")
