"""Two branches compared, and the output of the comparison."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from perdure.apps.cli.sessions.diff import difference, difference_data, difference_lines
from perdure.apps.terminal.style import Style
from perdure.session.codec import encode
from perdure.session.entries import Entry
from perdure.session.ids import StreamId, entry_id
from perdure.session.messages import user

S = StreamId("s")


def entry(seq: int, parent: int | None = None, stream: str = S) -> Entry:
    parent_id = None if parent is None else entry_id(stream, parent)
    return Entry(
        StreamId(stream), seq, "tree", parent_id, None, 0, "message", 1, encode(user(f"said {seq}"))
    )


def branch(*seqs: int) -> list[Entry]:
    parents = (None, *seqs)
    return [entry(seq, parent) for seq, parent in zip(seqs, parents, strict=False)]


def lines(first: list[Entry], second: list[Entry], limit: int | None = None) -> list[str]:
    found = difference(first, second)
    leaves = [path[-1].id if path else None for path in (first, second)]
    return list(difference_lines(found, leaves, S, 60, Style(), limit=limit))


def test_branches_diverge_after_their_last_shared_entry() -> None:
    found = difference(branch(0, 1, 2, 3), branch(0, 1, 5))
    assert [each.seq for each in found.shared] == [0, 1]
    assert found.parting == branch(0, 1)[-1]
    assert [each.seq for each in found.first] == [2, 3]
    assert [each.seq for each in found.second] == [5]


def test_diff_shows_last_shared_entry_and_different_entries() -> None:
    assert lines(branch(0, 1, 2, 3), branch(0, 1, 5)) == [
        "They share 2 entries and part after",
        "       1 user       said 1",
        "",
        "- entry 3 has 2 entries of its own",
        "-      2 user       said 2",
        "-      3 user       said 3",
        "",
        "+ entry 5 has 1 entry of its own",
        "+      5 user       said 5",
    ]


def test_diff_shows_which_branch_ends_at_a_shared_entry() -> None:
    assert "- entry 1 ends there." in lines(branch(0, 1), branch(0, 1, 2))


def test_branch_compared_with_itself_has_no_difference() -> None:
    (line,) = lines(branch(0, 1), branch(0, 1))
    assert line == "entry 1 and entry 1 end the same branch of 2 entries."


def test_branches_of_different_roots_share_no_entry() -> None:
    told = lines(branch(0, 1), branch(7))
    assert told[0] == "No shared entries: each branch has its own root."
    assert difference(branch(0), branch(7)).parting is None


def test_diff_reports_an_empty_branch() -> None:
    assert "- before its first entry ends there." in lines([], branch(0))


def test_diff_of_a_long_branch_omits_the_middle() -> None:
    told = lines(branch(0), branch(0, *range(5, 25)), limit=4)
    assert "+ ┆ 16 more; --all shows them" in told
    assert [line for line in told if "said" in line and line[0] == "+"] == [
        "+      5 user       said 5",
        "+      6 user       said 6",
        "+     23 user       said 23",
        "+     24 user       said 24",
    ]


def test_json_diff_has_leaf_and_entries_of_both_branches() -> None:
    first, second = branch(0, 1, 2), branch(0, 3)
    data = difference_data(difference(first, second), [first[-1].id, second[-1].id])
    assert (data["shared"], data["parting"]) == (1, "s/0")
    sides = msgspec.convert(data["branches"], list[dict[str, object]])
    assert sides[0]["leaf"] == "s/2"
    assert [
        each["text"] for each in msgspec.convert(sides[1]["entries"], list[dict[str, str]])
    ] == ["said 3"]


@given(
    shared=st.integers(0, 5),
    first=st.integers(0, 5),
    second=st.integers(0, 5),
    limit=st.integers(1, 6),
)
def test_comparison_of_two_branches_lists_each_entry_once(
    shared: int, first: int, second: int, limit: int
) -> None:
    path_a = branch(*range(shared), *range(100, 100 + first))
    path_b = branch(*range(shared), *range(200, 200 + second))
    found = difference(path_a, path_b)
    assert list(found.shared + found.first) == path_a
    assert list(found.shared + found.second) == path_b
    assert lines(path_a, path_b, limit)
