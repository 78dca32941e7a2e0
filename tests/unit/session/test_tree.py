from __future__ import annotations

import pytest

from perdure.session.ids import EntryId
from perdure.session.kinds import BranchSummary, ModelChange
from perdure.session.messages import Message, assistant, tool_call, tool_result, user
from perdure.session.tree import branch_to, index_of, nodes_of, turns_of
from tests.fakes.tree_log import TreeLog


def grown() -> TreeLog:
    """Return a tree of 0 - 1 - 2, with 3 and 4 as siblings of 1, and a second root 5."""
    log = TreeLog()
    log.extend(user("0"), user("1"), user("2"))
    for parent in ("s/0", "s/0", None):
        log.append(user("x"), parent=parent)
    return log


def test_tree_is_nested_by_parent_with_labels() -> None:
    first, second = nodes_of(index_of(grown().entries), {EntryId("s/3"): "here"})
    assert (first.entry.seq, second.entry.seq) == (0, 5)
    assert [(node.entry.seq, node.label) for node in first.children] == [
        (1, None),
        (3, "here"),
        (4, None),
    ]
    assert [node.entry.seq for node in first.children[0].children] == [2]


def test_branch_is_the_path_from_the_root_to_the_leaf() -> None:
    by_id = index_of(grown().entries).by_id
    assert [entry.seq for entry in branch_to(EntryId("s/2"), by_id)] == [0, 1, 2]
    assert [entry.seq for entry in branch_to(EntryId("s/5"), by_id)] == [5]
    assert branch_to(None, by_id) == []
    assert branch_to(EntryId("s/9"), by_id) == []


def test_orphan_is_a_root_and_first_entry_of_its_branch() -> None:
    log = TreeLog()
    log.append(user("a"), parent="lost/7")
    log.append(user("b"))
    index = index_of(log.entries)
    assert index.roots == ["s/0"]
    assert [entry.seq for entry in branch_to(EntryId("s/1"), index.by_id)] == [0, 1]


def test_empty_log_has_an_empty_tree() -> None:
    assert nodes_of(index_of([]), {}) == ()


def test_turn_contains_user_messages_and_their_answers() -> None:
    log = TreeLog()
    log.extend(user("a"), ModelChange("p:m"), user("b"), assistant(tool_call("c1", "read")))
    log.extend(tool_result("c1", "x"), assistant("A"), BranchSummary("Tried"), user("c"))
    first, second = turns_of(log.entries)
    assert [entry.seq for entry in first.entries] == [0, 2, 3, 4, 5]
    assert (first.asked, first.tools, first.is_completed) == ("a\n\nb", ("read",), True)
    assert ([entry.seq for entry in second.entries], second.is_completed) == ([7], False)
    assert turns_of([]) == ()


def test_unreadable_entry_is_not_part_of_a_turn() -> None:
    log = TreeLog()
    log.append(user("a"))
    log.append_raw("message", b"{}", v=99)
    log.append(assistant("A"))
    (turn,) = turns_of(log.entries)
    assert [entry.seq for entry in turn.entries] == [0, 2]


@pytest.mark.parametrize(
    ("answers", "is_completed"),
    [
        ([assistant("A")], True),
        ([assistant("")], False),
        ([assistant("Let me see.", tool_call("c", "read"))], False),
        ([assistant("Let me see.", tool_call("c", "read")), tool_result("c", "x")], False),
        ([assistant(tool_call("c", "read")), tool_result("c", "x"), assistant("A")], True),
        ([assistant("A"), assistant(tool_call("c", "read"))], False),
        ([assistant("Half an ans", stop_reason="aborted")], False),
        ([assistant("A"), assistant("")], True),
    ],
)
def test_turn_without_text_after_the_last_result_is_incomplete(
    answers: list[Message], is_completed: bool
) -> None:
    log = TreeLog()
    log.extend(user("a"), *answers)
    assert turns_of(log.entries)[0].is_completed is is_completed
