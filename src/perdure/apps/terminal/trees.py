"""A session's tree as JSON: a branch may be any number of entries long.

Shape: ``{"leaf", "roots": [{"id", "kind", "role"?, "label"?, "children": []}]}``. Every entry of a
branch lies one level deeper than its parent, so a reader of long branches needs a parser without a
limit of depth; ``perdure export --format perdure`` gives the same entries one a line.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.session.ids import EntryId
from perdure.session.tree import TreeNode, json_pieces


def tree_json(roots: Sequence[TreeNode], leaf: EntryId | None) -> bytes:
    """The tree as one line of JSON."""
    head = b'{"leaf":' + msgspec.json.encode(leaf) + b',"roots":['
    return b"".join((head, *json_pieces(roots), b"]}"))
