"""A session's tree as JSON, written without recursion: a branch may be any number of entries long.

Shape: ``{"leaf", "roots": [{"id", "kind", "role"?, "label"?, "children": []}]}``. Every entry of a
branch lies one level deeper than its parent, so a reader of long branches needs a parser without a
limit of depth; ``perdure export --format perdure`` gives the same entries one a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from perdure.session.codec import role_of
from perdure.session.ids import EntryId
from perdure.session.tree import TreeNode

_encode = msgspec.json.Encoder().encode


def tree_json(roots: Sequence[TreeNode], leaf: EntryId | None) -> bytes:
    """The tree as one line of JSON."""
    return b"".join(_pieces(roots, leaf))


def _pieces(roots: Sequence[TreeNode], leaf: EntryId | None) -> Iterator[bytes]:
    yield b'{"leaf":' + _encode(leaf) + b',"roots":'
    stack: list[TreeNode | bytes] = [b"}", *_listed(roots)]
    while stack:
        piece = stack.pop()
        if isinstance(piece, bytes):
            yield piece
            continue
        yield _opened(piece)
        stack += (b"}", *_listed(piece.children))


def _listed(nodes: Sequence[TreeNode]) -> list[TreeNode | bytes]:
    """``[node,node]``, last piece first, as a stack wants it."""
    pieces: list[TreeNode | bytes] = [b"["]
    for position, node in enumerate(nodes):
        if position:
            pieces.append(b",")
        pieces.append(node)
    pieces.append(b"]")
    return pieces[::-1]


def _opened(node: TreeNode) -> bytes:
    """The node's object up to the value of ``children``."""
    fields: dict[str, object] = {"id": node.entry.id, "kind": node.entry.kind}
    if role := role_of(node.entry):
        fields["role"] = role
    if node.label is not None:
        fields["label"] = node.label
    return _encode(fields)[:-1] + b',"children":'
