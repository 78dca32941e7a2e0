"""Nodes of deep trees: repr, comparison, copy, pickle and JSON work without recursion."""

from __future__ import annotations

import copy
import json
import pickle
import sys

import pytest

from perdure.session.ids import EntryId
from perdure.session.messages import assistant, user
from perdure.session.tree import TreeNode, index_of, nodes_of, tree_json
from tests.fakes.tree_log import TreeLog

DEEP = 8_000


def chain(length: int, label: str | None = None) -> TreeNode:
    log = TreeLog()
    log.extend(*(user("a") if n % 2 else assistant("b") for n in range(length)))
    last = log.entries[-1].id
    (root,) = nodes_of(index_of(log.entries), {} if label is None else {last: label})
    return root


@pytest.mark.full_only
def test_deep_tree_can_be_shown_compared_copied_and_pickled() -> None:
    assert sys.getrecursionlimit() < DEEP
    root = chain(DEEP)
    same, other = pickle.loads(pickle.dumps(root)), chain(3_000, "end")
    assert repr((root,)) == "(TreeNode('s/0', label=None, 1 children),)"
    assert root == same
    assert root not in (other, chain(3_000))
    assert len({root, same}) == 1
    assert copy.deepcopy((root,)) == (root,)
    assert copy.copy(root) is root
    assert pickle.loads(pickle.dumps(other)) == other
    assert root.to_json().count(b'"id"') == DEEP
    assert tree_json((root,), EntryId("s/1")).count(b'"children"') == DEEP


def test_json_of_a_tree_node_contains_nested_children() -> None:
    log = TreeLog()
    first, second = log.extend(user("a"), assistant("b"))
    log.append(assistant("c"), parent=first)
    (root,) = nodes_of(index_of(log.entries), {second: "kept"})
    assert json.loads(root.to_json()) == {
        "id": "s/0",
        "kind": "message",
        "role": "user",
        "children": [
            {"id": "s/1", "kind": "message", "role": "assistant", "label": "kept", "children": []},
            {"id": "s/2", "kind": "message", "role": "assistant", "children": []},
        ],
    }
    assert pickle.loads(pickle.dumps(root)) == root
    assert root.children[0] != root.children[1]
