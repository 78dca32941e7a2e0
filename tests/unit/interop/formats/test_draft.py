from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.interop.formats.draft import WARNINGS_OF_A_SORT, Draft, Leaf, Linker, Record
from perdure.interop.formats.items import SourceHeader
from perdure.interop.formats.lines import Line
from perdure.session.messages import user


class Linking:
    """Records told by id and parent, linked."""

    def __init__(self, links: list[tuple[str | None, str | None]]) -> None:
        self.draft = Draft("test")
        self.linker = Linker(self.draft, self._place)
        self.placed: list[str | None] = []
        for number, (own, parent) in enumerate(links, 1):
            self.linker.add(Record(Line(number, number, b"x"), {}, own, parent))
        self.linker.finish()

    def _place(self, record: Record, parent: int | None) -> int:
        self.placed.append(record.id)
        return self.draft.add(record, user("x"), parent)

    def parents(self) -> dict[str | None, str | None]:
        items = self.draft.items
        return {
            item.alias: None if item.parent is None else items[item.parent].alias for item in items
        }


def test_records_are_placed_below_their_parents_in_file_order() -> None:
    linking = Linking([("a", None), ("b", "a"), ("c", "b"), ("d", "a")])
    assert linking.placed == ["a", "b", "c", "d"]
    assert linking.parents() == {"a": None, "b": "a", "c": "b", "d": "a"}


def test_a_record_before_its_parent_waits_for_it() -> None:
    linking = Linking([("b", "a"), ("c", "b"), ("a", None), ("d", "c")])
    assert linking.placed == ["a", "b", "c", "d"]
    assert linking.parents() == {"a": None, "b": "a", "c": "b", "d": "c"}


def test_an_orphan_starts_a_branch_and_is_reported() -> None:
    linking = Linking([("a", None), ("b", "gone"), ("c", "b")])
    assert linking.parents() == {"a": None, "b": None, "c": "b"}
    [warning] = linking.draft.parsed(SourceHeader(), None).warnings
    assert warning.startswith("line 2")


def test_a_circle_is_opened_at_its_first_line() -> None:
    assert Linking([("a", "c"), ("b", "a"), ("c", "b")]).parents() == {
        "a": None,
        "b": "a",
        "c": "b",
    }
    assert Linking([("a", "a")]).parents() == {"a": None}


def test_of_two_records_with_one_id_the_later_gets_the_children() -> None:
    linking = Linking([("a", None), ("a", None), ("b", "a")])
    assert linking.draft.items[2].parent == 1


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c", "d", None]),
            st.sampled_from(["a", "b", "c", "d", "e", None]),
        ),
        max_size=12,
    )
)
def test_every_record_is_placed_once_and_after_its_parent(
    links: list[tuple[str | None, str | None]],
) -> None:
    linking = Linking(links)
    items = linking.draft.items
    assert sorted(item.number for item in items) == list(range(1, len(links) + 1))
    assert all(item.parent is None or item.parent < n for n, item in enumerate(items))


def test_the_leaf_is_the_last_line_in_whatever_order_lines_are_placed() -> None:
    leaf = Leaf()
    for number in (1, 3, 2):
        leaf.follow(Record(Line(number, 0, b""), {}), number * 10)
    assert leaf.node == 30


def test_a_record_without_a_time_has_that_of_the_one_before() -> None:
    draft = Draft("test")
    draft.add(Record(Line(1, 0, b"x"), {}, at=7), user("a"), None)
    draft.add(Record(Line(2, 2, b"x"), {}), user("b"), None)
    assert [item.at for item in draft.items] == [7, 7]


def test_progress_is_told_as_lines_are_read_and_at_the_end() -> None:
    content = b"1\n" * 2_500
    told: list[tuple[int, int]] = []

    def tell(done: int, total: int) -> None:
        told.append((done, total))

    assert len(list(Draft("test").readings(content, tell))) == 2_500
    assert told == [(1998, 5000), (3998, 5000), (5000, 5000)]


def test_many_warnings_of_a_sort_are_cut_short_but_no_line_is_forgotten() -> None:
    draft = Draft("test")
    for number in range(WARNINGS_OF_A_SORT + 5):
        draft.malformed(Line(number, 0, b""), "bad")
    parsed = draft.parsed(SourceHeader(), None)
    assert len(parsed.warnings) == WARNINGS_OF_A_SORT + 1
    assert parsed.warnings[-1].startswith("5 more")
    assert len(parsed.malformed) == WARNINGS_OF_A_SORT + 5


def test_an_id_that_two_lines_have_is_told_and_both_are_kept() -> None:
    linking = Linking([("a", None), ("b", "a"), ("b", "a"), ("c", "b")])
    assert [item.number for item in linking.draft.items] == [1, 2, 3, 4]
    assert linking.draft.items[3].parent == 2
    [warning] = linking.draft.parsed(SourceHeader(), None).warnings
    assert warning.startswith("line 3: an earlier line has its id 'b' too")


def test_only_a_version_that_nobody_knows_is_told() -> None:
    draft = Draft("test")
    for version in (None, 1, 3, 3.0):
        draft.check_version(Line(1, 0, b""), version, 3)
    assert draft.parsed(SourceHeader(), None).warnings == ()
    for version in (0, 4, 2.5, 99):
        draft.check_version(Line(1, 0, b""), version, 3)
    assert len(draft.parsed(SourceHeader(), None).warnings) == 4
