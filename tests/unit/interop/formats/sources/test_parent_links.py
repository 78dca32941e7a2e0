from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.codecs.lines import Line
from perdure.interop.formats.items import SourceHeader
from perdure.interop.formats.sources.outline import Whole
from perdure.interop.formats.sources.parent_links import Leaf, Linker
from perdure.interop.formats.sources.parse_state import Record, SourceDraft
from perdure.session.messages import user


class Linking:
    """Records with ids and parents, and the links between them."""

    def __init__(self, links: list[tuple[str | None, str | None]]) -> None:
        self.items = Whole()
        self.draft = SourceDraft("test", items=self.items)
        self.linker = Linker(self.draft, self._place)
        self.placed: list[str | None] = []
        for number, (own, parent) in enumerate(links, 1):
            self.linker.add(Record(Line(number, number, b"x"), {}, own, parent))
        while self.linker.place_next():
            pass
        self.linker.close()
        while self.linker.place_next():
            pass

    def _place(self, record: Record, parent: int | None) -> int:
        self.placed.append(record.id)
        return self.draft.add(record, user("x"), parent)

    def parents(self) -> dict[str | None, str | None]:
        items = self.items.items
        return {
            item.alias: None if item.parent is None else items[item.parent].alias for item in items
        }


def test_records_are_placed_below_their_parents_in_file_order() -> None:
    linking = Linking([("a", None), ("b", "a"), ("c", "b"), ("d", "a")])
    assert linking.placed == ["a", "b", "c", "d"]
    assert linking.parents() == {"a": None, "b": "a", "c": "b", "d": "a"}


def test_record_read_before_its_parent_waits_for_the_parent() -> None:
    linking = Linking([("b", "a"), ("c", "b"), ("a", None), ("d", "c")])
    assert linking.placed == ["a", "b", "c", "d"]
    assert linking.parents() == {"a": None, "b": "a", "c": "b", "d": "c"}


def test_orphan_starts_a_branch_and_is_reported() -> None:
    linking = Linking([("a", None), ("b", "gone"), ("c", "b")])
    assert linking.parents() == {"a": None, "b": None, "c": "b"}
    [warning] = linking.draft.finish(SourceHeader(), None).warnings
    assert warning.startswith("line 2")


def test_first_record_of_a_parent_cycle_becomes_a_root() -> None:
    assert Linking([("a", "c"), ("b", "a"), ("c", "b")]).parents() == {
        "a": None,
        "b": "a",
        "c": "b",
    }
    assert Linking([("a", "a")]).parents() == {"a": None}


def test_children_of_a_duplicate_id_belong_to_the_later_record() -> None:
    linking = Linking([("a", None), ("a", None), ("b", "a")])
    assert linking.items.items[2].parent == 1


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
    items = linking.items.items
    assert sorted(item.number for item in items) == list(range(1, len(links) + 1))
    assert all(item.parent is None or item.parent < n for n, item in enumerate(items))


def test_leaf_is_the_record_of_the_last_line() -> None:
    leaf = Leaf()
    for number in (1, 3, 2):
        leaf.follow(Record(Line(number, 0, b""), {}), number * 10)
    assert leaf.node == 30


def test_duplicate_id_is_reported_and_both_lines_are_stored() -> None:
    linking = Linking([("a", None), ("b", "a"), ("b", "a"), ("c", "b")])
    assert [item.number for item in linking.items.items] == [1, 2, 3, 4]
    assert linking.items.items[3].parent == 2
    [warning] = linking.draft.finish(SourceHeader(), None).warnings
    assert warning.startswith("line 3: an earlier line has its id 'b' too")
