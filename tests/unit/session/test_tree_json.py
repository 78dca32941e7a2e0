"""The JSON of a tree has the documented shape for branches of any length."""

from __future__ import annotations

import json

from perdure.session.ids import EntryId
from perdure.session.kinds import Compaction
from perdure.session.messages import user
from perdure.session.tree import index_of, nodes_of, tree_json
from tests.fakes.tree_log import TreeLog


def test_tree_json_contains_roles_labels_and_nested_children() -> None:
    log = TreeLog()
    log.append(user("a"))
    log.append(Compaction("b"))
    log.append(user("c"), parent="s/0")
    log.append(user("d"), parent=None)
    text = tree_json(nodes_of(index_of(log.entries), {EntryId("s/2"): "é"}), log.leaf)
    assert json.loads(text) == {
        "leaf": "s/3",
        "roots": [
            {
                "id": "s/0",
                "kind": "message",
                "role": "user",
                "children": [
                    {"id": "s/1", "kind": "compaction", "children": []},
                    {
                        "id": "s/2",
                        "kind": "message",
                        "role": "user",
                        "label": "é",
                        "children": [],
                    },
                ],
            },
            {"id": "s/3", "kind": "message", "role": "user", "children": []},
        ],
    }


def test_empty_tree_is_an_empty_list() -> None:
    assert json.loads(tree_json((), None)) == {"leaf": None, "roots": []}


def test_branch_of_ten_thousand_entries_is_written() -> None:
    log = TreeLog()
    for _ in range(10_000):
        log.append(user("x"))
    text = tree_json(nodes_of(index_of(log.entries), {}), log.leaf)
    assert text.count(b'"id":') == 10_000
    assert text.endswith(b'"children":[]' + b"}]" * 10_000 + b"}")
