"""The shape of a conversation: parents, children, branches, nested nodes, turns.

The functions of this module accept any set of entries. An entry is a root if it has no parent, if
its parent is missing, or if it is the first entry of a cycle (for example, its own parent). Even
the tree of a damaged or partial log contains each entry exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from perdure.errors import CorruptLog, UnsupportedVersion
from perdure.session.codec import role_of
from perdure.session.entries import Entry
from perdure.session.ids import EntryId
from perdure.session.messages import MESSAGE, Message

_encode = msgspec.json.Encoder().encode


class TreeNode(msgspec.Struct, frozen=True, eq=False):
    """An entry with its children, oldest first (by seq), and its label if it has one.

    `repr` shows only one level. Comparing, copying, pickling and `to_json` use no recursion.
    Because no recursion is used, a branch can have any length.
    """

    entry: Entry
    label: str | None
    children: tuple[TreeNode, ...]

    def to_json(self) -> bytes:
        """Return the node and its descendants as one line of JSON.

        Shape: ``{"id", "kind", "role"?, "label"?, "children": []}``, nested as deep as the tree is.
        `Session.tree_entries` gives the same entries as a flat list.
        """
        return b"".join(json_pieces((self,)))

    def __repr__(self) -> str:
        below = len(self.children)
        return f"TreeNode({self.entry.id!r}, label={self.label!r}, {below} children)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeNode):
            return NotImplemented
        waiting: list[tuple[TreeNode, TreeNode]] = [(self, other)]
        while waiting:
            one, two = waiting.pop()
            if one is two:
                continue
            if (one.entry, one.label) != (two.entry, two.label):
                return False
            if len(one.children) != len(two.children):
                return False
            waiting.extend(zip(one.children, two.children, strict=True))
        return True

    def __hash__(self) -> int:
        return hash((self.entry, self.label, len(self.children)))

    def __copy__(self) -> TreeNode:
        return self

    def __deepcopy__(self, memo: object) -> TreeNode:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return _node_of_rows, (tuple(_rows_below(self)),)


_Row = tuple[Entry, str | None, int]
"""A node of a tree without its children: its entry, its label, and the number of its children."""


def _rows_below(node: TreeNode) -> Iterator[_Row]:
    """Yield `node` and its descendants, each after its parent."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        yield each.entry, each.label, len(each.children)
        waiting += reversed(each.children)


def _node_of_rows(rows: Sequence[_Row]) -> TreeNode:
    """Rebuild the node from `rows`, which `_rows_below` has yielded."""
    nodes: list[TreeNode] = []
    for entry, label, count in reversed(rows):
        children = tuple(nodes.pop() for _ in range(count))
        nodes.append(TreeNode(entry, label, children))
    return nodes[0]


def json_pieces(nodes: Sequence[TreeNode]) -> Iterator[bytes]:
    """Yield JSON of `nodes` and their descendants in pieces, with a comma between `nodes`."""
    waiting: list[TreeNode | bytes] = _with_commas(nodes)
    while waiting:
        piece = waiting.pop()
        if isinstance(piece, bytes):
            yield piece
            continue
        yield _opening_json(piece)
        waiting += (b"]}", *_with_commas(piece.children))


def tree_json(roots: Sequence[TreeNode], leaf: EntryId | None) -> bytes:
    """Return the tree as one line of JSON in the form ``{"leaf", "roots": [node]}``.

    Shape: a node is ``{"id", "kind", "role"?, "label"?, "children": [node]}``. Each entry of a
    branch is nested one level deeper than its parent, so a reader of long branches needs a parser
    without a depth limit. ``perdure export --format perdure`` prints one line per entry.
    """
    head = b'{"leaf":' + msgspec.json.encode(leaf) + b',"roots":['
    return b"".join((head, *json_pieces(roots), b"]}"))


def _with_commas(nodes: Sequence[TreeNode]) -> list[TreeNode | bytes]:
    """Return `nodes` with commas between them, in reverse order, for use as a stack."""
    pieces: list[TreeNode | bytes] = []
    for node in reversed(nodes):
        pieces += (node, b",")
    return pieces[:-1]


def _opening_json(node: TreeNode) -> bytes:
    """Return the beginning of the node's JSON object, up to its first child."""
    fields: dict[str, object] = {"id": node.entry.id, "kind": node.entry.kind}
    if role := role_of(node.entry):
        fields["role"] = role
    if node.label is not None:
        fields["label"] = node.label
    return _encode(fields)[:-1] + b',"children":['


class TreeIndex(msgspec.Struct, frozen=True):
    """Entries of the tree lane by id, with their children.

    Shape: `roots` and each value of `children` are in log order; every entry is reachable from
    exactly one root.
    """

    by_id: Mapping[EntryId, Entry]
    children: Mapping[EntryId, Sequence[EntryId]]
    roots: Sequence[EntryId]


def index_of(entries: Iterable[Entry]) -> TreeIndex:
    """Return the index of the tree entries in `entries`.

    `entries` are in log order; for a fork, the entries of its origin come first.
    """
    by_id = {entry.id: entry for entry in entries if entry.lane == "tree"}
    loops = _first_of_each_cycle(by_id)
    children: dict[EntryId, list[EntryId]] = {}
    roots: list[EntryId] = []
    for id_, entry in by_id.items():
        parent = entry.parent_id
        if parent is None or parent not in by_id or id_ in loops:
            roots.append(id_)
        elif (siblings := children.get(parent)) is None:
            children[parent] = [id_]
        else:
            siblings.append(id_)
    return TreeIndex(by_id, children, roots)


def _first_of_each_cycle(by_id: Mapping[EntryId, Entry]) -> set[EntryId]:
    """Return the first entry, in log order, of each cycle; the cycle is cut at this entry."""
    # In each cycle, at least one entry does not come after its parent.
    starts: list[EntryId] = []
    before: set[EntryId] = set()
    newest: EntryId | None = None  # the usual parent, compared without a look-up
    for id_, entry in by_id.items():
        parent = entry.parent_id
        is_before = parent is None or parent == newest or parent in before
        if not is_before and parent in by_id:
            starts.append(id_)
        before.add(id_)
        newest = id_
    if not starts:
        return set()
    settled: set[EntryId] = set()
    firsts: set[EntryId] = set()
    order = {id_: n for n, id_ in enumerate(by_id)}
    for start in starts:
        walked: dict[EntryId, None] = {}
        cursor: EntryId | None = start
        while cursor is not None and cursor in by_id and cursor not in settled:
            if cursor in walked:
                trail = list(walked)
                firsts.add(min(trail[trail.index(cursor) :], key=order.__getitem__))
                break
            walked[cursor] = None
            cursor = by_id[cursor].parent_id
        settled.update(walked)
    return firsts


def branch_to(leaf: EntryId | None, by_id: Mapping[EntryId, Entry]) -> list[Entry]:
    """Return the entries from the root to `leaf`; an empty list if `leaf` is None.

    The path stops at a missing parent or at a cycle.
    """
    path: list[Entry] = []
    seen: set[EntryId] = set()
    cursor = leaf
    while cursor is not None and cursor in by_id and cursor not in seen:
        seen.add(cursor)
        entry = by_id[cursor]
        path.append(entry)
        cursor = entry.parent_id
    path.reverse()
    return path


def tree_of(entries: Sequence[Entry], labels: Mapping[EntryId, str]) -> tuple[TreeNode, ...]:
    """Return the roots of the tree that the tree entries among `entries` form, as nested nodes."""
    nodes = _nodes_from_end(entries, labels)
    return nodes_of(index_of(entries), labels) if nodes is None else nodes


def _nodes_from_end(
    entries: Sequence[Entry], labels: Mapping[EntryId, str]
) -> tuple[TreeNode, ...] | None:
    """Build the tree from the last entry to the first.

    Return None if a parent comes after its child. The function reads the entries once, from last to
    first. The function stores each node until it reads the node's parent.
    """
    roots: list[TreeNode] = []
    waiting: dict[EntryId, list[TreeNode]] = {}
    for entry in reversed(entries):
        if entry.lane != "tree":
            continue
        id_, parent = entry.id, entry.parent_id
        below = waiting.pop(id_, None)
        node = TreeNode(entry, labels.get(id_), tuple(reversed(below)) if below else ())
        if parent is None:
            roots.append(node)
        else:
            waiting.setdefault(parent, []).append(node)
    roots.reverse()
    return None if waiting else tuple(roots)


def nodes_of(index: TreeIndex, labels: Mapping[EntryId, str]) -> tuple[TreeNode, ...]:
    """Return the roots of the tree as nested nodes, which are built without recursion."""
    finished: dict[EntryId, TreeNode] = {}
    stack: list[EntryId] = list(index.by_id)  # newest on top: its children are already done
    while stack:
        current = stack[-1]
        if current in finished:
            stack.pop()
            continue
        below = index.children.get(current, ())
        waiting = [child for child in below if child not in finished]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        finished[current] = TreeNode(
            index.by_id[current], labels.get(current), tuple(finished[child] for child in below)
        )
    return tuple(finished[root] for root in index.roots)


class BranchTurn(msgspec.Struct, frozen=True):
    """Consecutive user messages, and all messages that answer them.

    Shape: `entries` are message entries in path order, `messages` are the messages in them.
    Messages before the first user message of a branch form a turn without a user message.
    """

    entries: tuple[Entry, ...]
    messages: tuple[Message, ...]

    @property
    def asked(self) -> str:
        """Return the user's texts, joined by blank lines."""
        texts = (message.text for message in self.messages if message.role == "user")
        return "\n\n".join(text for text in texts if text.strip())

    @property
    def tools(self) -> tuple[str, ...]:
        """Return the names of the called tools, each once, in the order of their first call."""
        calls = (call.name for message in self.messages for call in message.tool_calls)
        return tuple(dict.fromkeys(calls))

    @property
    def is_completed(self) -> bool:
        """Return True if a complete text answer follows the last tool call and tool result."""
        is_completed = False
        for message in self.messages:
            if message.role == "tool" or message.tool_calls:
                is_completed = False
            elif message.role == "assistant" and message.text.strip():
                is_completed = message.stop_reason not in ("aborted", "error")
        return is_completed


def turns_of(branch: Iterable[Entry]) -> tuple[BranchTurn, ...]:
    """Return the turns of `branch`, which are the tree entries from a root to a leaf.

    A user message after an answer starts a turn; consecutive user messages are one question.
    Entries that are not messages, or are unreadable, belong to no turn.
    """
    turns: list[BranchTurn] = []
    entries: list[Entry] = []
    messages: list[Message] = []
    is_answered = False
    for entry in branch:
        message = _readable_message(entry)
        if message is None:
            continue
        if message.role == "user" and is_answered:
            turns.append(BranchTurn(tuple(entries), tuple(messages)))
            entries, messages, is_answered = [], [], False
        entries.append(entry)
        messages.append(message)
        is_answered = is_answered or message.role == "assistant"
    if messages:
        turns.append(BranchTurn(tuple(entries), tuple(messages)))
    return tuple(turns)


def _readable_message(entry: Entry) -> Message | None:
    if entry.kind != MESSAGE:
        return None
    try:
        return entry.message
    except (CorruptLog, UnsupportedVersion):
        return None
