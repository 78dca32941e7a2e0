from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId, entry_id
from perdure.session.tree import TreeNode, branch_to, index_of, nodes_of, tree_of

STREAM = StreamId("s")
DEPTH = 20_000

# The parent of each entry, by seq: any other, itself, none (-1), or one that is missing.
parents = st.lists(st.integers(min_value=-1, max_value=25), max_size=20)


def entry_at(seq: int, parent: int) -> Entry:
    above = None if parent < 0 else entry_id(STREAM, parent)
    return Entry(STREAM, seq, "tree", above, None, 0, "custom", 1, b"{}")


def log_of(parents: Iterable[int]) -> list[Entry]:
    return [entry_at(seq, parent) for seq, parent in enumerate(parents)]


def all_nodes(roots: Iterable[TreeNode]) -> list[TreeNode]:
    found: list[TreeNode] = []
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting.extend(node.children)
    return found


@given(parents)
@example([0])
@example([1, 0])
@example([1, 2, 3, 1])
@example([-1, 0, 3, 4, 2, 2])
def test_every_entry_is_in_the_tree_exactly_once(parents: list[int]) -> None:
    log = log_of(parents)
    roots = nodes_of(index_of(log), {})
    assert tree_of(log, {}) == roots
    nodes = all_nodes(roots)
    assert Counter(node.entry.seq for node in nodes) == Counter(range(len(log)))


@given(parents)
def test_entry_is_a_root_or_is_below_its_parent(parents: list[int]) -> None:
    index = index_of(log_of(parents))
    for node in all_nodes(nodes_of(index, {})):
        assert all(child.entry.parent_id == node.entry.id for child in node.children)
    below = {child for children in index.children.values() for child in children}
    assert below.isdisjoint(index.roots)
    assert below | set(index.roots) == set(index.by_id)


@given(parents)
def test_root_has_no_parent_or_its_parent_is_in_a_cycle(
    parents: list[int],
) -> None:
    index = index_of(log_of(parents))
    for id_, entry in index.by_id.items():
        if entry.parent_id is None or entry.parent_id not in index.by_id:
            assert id_ in index.roots
    for root in index.roots:
        entry = index.by_id[root]
        if entry.parent_id in index.by_id:
            trail = branch_to(entry.parent_id, index.by_id)
            assert entry in trail
            assert all(entry.seq <= other.seq for other in cycle_through(entry, index.by_id))


def cycle_through(entry: Entry, by_id: Mapping[EntryId, Entry]) -> list[Entry]:
    found = [entry]
    while (above := found[-1].parent_id) is not None and above != entry.id:
        found.append(by_id[above])
    return found


@given(parents)
def test_roots_and_children_come_in_the_order_of_the_log(parents: list[int]) -> None:
    index = index_of(log_of(parents))
    order = {id_: entry.seq for id_, entry in index.by_id.items()}
    for group in (index.roots, *index.children.values()):
        assert [order[id_] for id_ in group] == sorted(order[id_] for id_ in group)
    for node in all_nodes(nodes_of(index, {})):
        seqs = [child.entry.seq for child in node.children]
        assert seqs == sorted(seqs)


@given(parents, st.integers(min_value=-1, max_value=25))
def test_each_branch_entry_is_the_parent_of_the_next_entry(parents: list[int], leaf: int) -> None:
    by_id = index_of(log_of(parents)).by_id
    path = branch_to(entry_id(STREAM, leaf), by_id)
    assert len({entry.id for entry in path}) == len(path)
    assert [entry.id for entry in path[-1:]] == [entry_id(STREAM, leaf)] * (
        leaf in range(len(parents))
    )
    assert all(below.parent_id == above.id for above, below in pairwise(path))


@given(parents)
def test_entries_outside_the_tree_are_in_no_branch(parents: list[int]) -> None:
    log = log_of(parents)
    side = [Entry(STREAM, 100, "side", None, EntryId("s/0"), 0, "label", 1, b"{}")]
    assert index_of([*log, *side]) == index_of(log)


def test_very_deep_branch_is_read_completely() -> None:
    log = log_of(range(-1, DEPTH - 1))
    index = index_of(log)
    assert branch_to(log[-1].id, index.by_id) == log
    node = nodes_of(index, {log[-1].id: "deepest"})[0]
    depth = 1
    while node.children:
        (node,) = node.children
        depth += 1
    assert (depth, node.label) == (DEPTH, "deepest")


def test_cycle_of_parents_gives_exactly_one_root() -> None:
    log = log_of([DEPTH - 1, *range(DEPTH - 1)])
    index = index_of(log)
    assert list(index.roots) == [log[0].id]
    assert len(branch_to(log[0].id, index.by_id)) == DEPTH
    assert len(all_nodes(nodes_of(index, {}))) == DEPTH


def test_many_children_of_one_entry_are_complete() -> None:
    log = log_of([-1, *[0] * 20_000])
    (root,) = nodes_of(index_of(log), {})
    assert [child.entry.seq for child in root.children] == list(range(1, 20_001))
