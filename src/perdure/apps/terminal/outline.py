"""Rows of a session's tree in drawing order; in large trees, runs of rows are folded.

The current branch is in the first column. A side branch is drawn further right, above the row that
continues the current branch. This drawing order puts the leaf into the last row, and indentation
shows how deeply branches are nested, not how long they are. The functions are pure and do not
recurse, so branches can have any length.

Shape: a run consists of consecutive rows that need not stay visible (`_is_kept`). Rows outside of
runs are folded only in branches that are nested too deeply.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
from rich.cells import cell_len

from perdure.apps.terminal.previews import WHO_WIDTH, preview_of, who_of
from perdure.apps.terminal.style import Meaning, Style
from perdure.apps.terminal.text import clip, one_line, pad
from perdure.session.codec import role_of
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import BranchSummary, Compaction
from perdure.session.tree import TreeNode

_WORTH_FOLDING = 3
"""Minimum number of rows to fold; fewer rows stay visible."""

_LANDMARKS = frozenset({Compaction.kind, BranchSummary.kind})


class Row(msgspec.Struct, frozen=True):
    """One entry, and its position in the drawing.

    `starts` is True if a side branch or another root begins with this row.
    """

    entry: Entry
    depth: int
    label: str | None = None
    starts: bool = False
    is_leaf: bool = False
    is_kept: bool = False


class Fold(msgspec.Struct, frozen=True):
    """A run of folded rows: their entries, and the number of rows of each role or kind.

    If `is_branch` is True, the folded rows are the rest of the branch that begins with the row
    above; otherwise, the folded rows are the run between the row above and the row below.
    """

    depth: int
    hidden: tuple[EntryId, ...]
    kinds: tuple[tuple[str, int], ...]
    is_branch: bool = False

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.hidden)


Line = Row | Fold


def lines_of(
    roots: Sequence[TreeNode],
    leaf: EntryId | None,
    *,
    limit: int | None = None,
    depth: int | None = None,
) -> list[Line]:
    """Return the lines of the tree: at most `limit` if possible, with as much detail as fits.

    To save lines, steps inside turns are folded first, then whole turns, then side branches. Branch
    points, labels, compactions, ends of branches and the leaf stay visible, so there can be more
    than `limit` lines. Branches nested deeper than `depth` are always folded. A `limit` or `depth`
    of None has no effect.
    """
    rows = list(rows_of(roots, leaf))
    lines = _cut_at(rows, depth)
    if limit is None or len(lines) <= limit:
        return lines
    best = lines
    for shown in _selections(lines, limit):
        best = fold_runs(lines, shown)
        if len(best) <= limit:
            return best
    deepest = max((line.depth for line in lines), default=0)
    while len(best) > limit and deepest > 0:
        deepest //= 2
        best = fold_runs(_cut_at(rows, deepest), frozenset())
    return best


def _selections(lines: Sequence[Line], limit: int) -> Iterator[frozenset[EntryId]]:
    """Yield smaller and smaller sets of rows that stay visible inside runs.

    The first set contains the ends of all turns. If `limit` allows it, the second set contains some
    of the user messages. The last set is empty.
    """
    inside = [line for line in lines if isinstance(line, Row) and not line.is_kept]
    yield frozenset(_turn_ends(inside))
    asked = [row.entry.id for row in inside if role_of(row.entry) == "user"]
    room = (limit - len(fold_runs(lines, frozenset()))) // 2  # each is followed by a count
    if asked and room > 0:
        yield frozenset(asked[:: math.ceil(len(asked) / room)])
    yield frozenset()


def _turn_ends(rows: Sequence[Row]) -> Iterator[EntryId]:
    """Yield the ids of user messages, and of the answers directly before these messages."""
    answer: EntryId | None = None
    for row in rows:
        role = role_of(row.entry)
        if role == "user":
            yield row.entry.id
            if answer is not None:
                yield answer
        if role:
            answer = row.entry.id if role == "assistant" else None


def rows_of(roots: Sequence[TreeNode], leaf: EntryId | None) -> Iterator[Row]:
    """Return every entry once.

    Among entries with the same parent, the entry on the current branch comes last; if none of these
    entries is on the current branch, the newest entry comes last.
    """
    to_leaf = _path_to(roots, leaf)
    stack: list[tuple[TreeNode, int, bool]] = _siblings(roots, to_leaf, 0, is_root=True)
    while stack:
        node, depth, starts = stack.pop()
        yield Row(
            node.entry,
            depth,
            node.label,
            starts,
            node.entry.id == leaf,
            _is_kept(node, leaf, starts=starts),
        )
        stack += _siblings(node.children, to_leaf, depth, is_root=False)


def _siblings(
    nodes: Sequence[TreeNode], to_leaf: set[EntryId], depth: int, *, is_root: bool
) -> list[tuple[TreeNode, int, bool]]:
    """Return the nodes in reverse drawing order: the node on the current branch is drawn last."""
    if not nodes:
        return []
    straight = next((node for node in nodes if node.entry.id in to_leaf), nodes[-1])
    sides = [node for node in nodes if node is not straight]
    return [(straight, depth, is_root), *((node, depth + 1, True) for node in reversed(sides))]


def _path_to(roots: Sequence[TreeNode], leaf: EntryId | None) -> set[EntryId]:
    """Return the ids of the branch that ends at `leaf`."""
    parents: dict[EntryId, EntryId | None] = {}
    stack: list[tuple[TreeNode, EntryId | None]] = [(node, None) for node in roots]
    while stack:
        node, parent = stack.pop()
        parents[node.entry.id] = parent
        stack += ((child, node.entry.id) for child in node.children)
    path: set[EntryId] = set()
    while leaf is not None and leaf in parents:
        path.add(leaf)
        leaf = parents[leaf]
    return path


def _is_kept(node: TreeNode, leaf: EntryId | None, *, starts: bool) -> bool:
    """Whether the row stays visible, because it shows the shape of the tree or has a label."""
    return (
        starts
        or node.label is not None
        or len(node.children) != 1
        or node.entry.id == leaf
        or node.entry.kind in _LANDMARKS
    )


def _cut_at(rows: Sequence[Row], depth: int | None) -> list[Line]:
    """Reduce every branch nested deeper than `depth` to its first row and a count."""
    if depth is None:
        return list(rows)
    return fold_branches(rows, {r.entry.id for r in rows if r.starts and r.depth == depth + 1})


def fold_branches(rows: Sequence[Row], closed: Collection[EntryId]) -> list[Line]:
    """Reduce each branch that begins with an entry of `closed` to its first row and a count."""
    lines: list[Line] = []
    at = 0
    while at < len(rows):
        lines.append(rows[at])
        end = branch_end(rows, at) if rows[at].entry.id in closed else at + 1
        if end > at + 1:
            lines.append(_fold_of(rows[at + 1 : end], is_branch=True))
        at = end
    return lines


def branch_end(rows: Sequence[Row], start: int) -> int:
    """Return the position after the last row of the branch that begins at `start`."""
    depth = rows[start].depth
    for at in range(start + 1, len(rows)):
        if rows[at].depth < depth or (rows[at].starts and rows[at].depth == depth):
            return at
    return len(rows)


def fold_runs(lines: Iterable[Line], shown: frozenset[EntryId]) -> list[Line]:
    """Replace the rows inside runs by counts, except the rows in `shown`."""
    result: list[Line] = []
    hidden: list[Row] = []
    for line in lines:
        if isinstance(line, Row) and not line.is_kept and line.entry.id not in shown:
            if hidden and hidden[-1].depth != line.depth:
                result += _count_line(hidden)
                hidden = []
            hidden.append(line)
            continue
        result += _count_line(hidden)
        hidden = []
        result.append(line)
    return result + _count_line(hidden)


def _count_line(hidden: Sequence[Row]) -> list[Line]:
    return list(hidden) if len(hidden) < _WORTH_FOLDING else [_fold_of(hidden)]


def _fold_of(hidden: Sequence[Row], *, is_branch: bool = False) -> Fold:
    """Return the line that takes the place of the rows `hidden`, with the counts of their roles."""
    kinds: Mapping[str, int] = Counter(who_of(row.entry)[0] for row in hidden)
    ordered = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
    depth = min(row.depth for row in hidden)
    return Fold(depth, tuple(row.entry.id for row in hidden), tuple(ordered), is_branch)


_LABEL_WIDTH = 30
_LEAST_WHAT = 8
"""Minimum width of an entry's text, in cells, however deep its branch is."""


class Glyphs(msgspec.Struct, frozen=True):
    """The characters for drawing the graph. Shape: each character is one cell wide."""

    through: str = "│"
    side: str = "├"
    root: str = "╭"
    dash: str = "─"
    entry: str = "○"
    spoken: str = "●"
    mark: str = "◆"
    folded: str = "┆"
    leaf: str = "◀"
    shared: str = "↑"


_ASCII = Glyphs("|", "|", ",", "-", "o", "*", "#", ":", "<", "^")
_SPOKEN = frozenset({"user", "assistant"})


def draw(lines: Sequence[Line], own: StreamId, width: int, style: Style) -> Iterator[str]:
    """Draw `lines`, each at most `width` cells wide; mark entries of streams other than `own`."""
    entries = [line.entry for line in lines if isinstance(line, Row)]
    pen = _Pen(
        own=own,
        width=width,
        style=style,
        glyphs=Glyphs() if style.is_unicode else _ASCII,
        number_width=max((len(str(e.seq)) + (e.stream != own) for e in entries), default=1),
        deepest=max((width - WHO_WIDTH - 24) // 4, 1),
    )
    for line in lines:
        yield pen.row(line) if isinstance(line, Row) else pen.fold(line)


class _Pen(msgspec.Struct, frozen=True):
    """Draws single lines.

    Branches that are nested deeper than `deepest` are not indented further.
    """

    own: StreamId
    width: int
    style: Style
    glyphs: Glyphs
    number_width: int
    deepest: int

    def row(self, row: Row) -> str:
        """Draw one entry."""
        paint = self.style.paint
        number = f"{'' if row.entry.stream == self.own else self.glyphs.shared}{row.entry.seq}"
        graph = self._graph(row.depth, row)
        marks = self._marks(row)
        room = self._room(graph) - sum(cell_len(text) + 2 for text, _ in marks)
        preview = preview_of(row.entry, max(room, _LEAST_WHAT))
        is_quiet = preview.meaning in ("faint", "tool")
        pieces = [
            paint(number.rjust(self.number_width), "faint"),
            " ",
            paint(graph, "faint"),
            paint(self._bullet(row), preview.meaning),
            " ",
            paint(pad(clip(preview.who, WHO_WIDTH), WHO_WIDTH), preview.meaning),
            " ",
            paint(preview.what, "faint" if is_quiet else "plain"),
            *("  " + paint(text, mark) for text, mark in marks),
        ]
        return "".join(pieces).rstrip()

    def fold(self, fold: Fold) -> str:
        """Draw a line with the count of folded rows."""
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in fold.kinds)
        graph = " " * (self.number_width + 1) + self._graph(fold.depth, None)
        text = f"{self.glyphs.folded} {fold.count:,} more: {kinds}"
        room = self.width - cell_len(graph)
        return self.style.paint(graph + clip(text, room), "faint")

    def _marks(self, row: Row) -> list[tuple[str, Meaning]]:
        marks: list[tuple[str, Meaning]] = []
        if row.label is not None:
            marks.append((f"[{one_line(row.label, _LABEL_WIDTH)}]", "label"))
        if row.is_leaf:
            marks.append((f"{self.glyphs.leaf} here", "leaf"))
        return marks

    def _graph(self, depth: int, row: Row | None) -> str:
        shown = min(depth, self.deepest)
        over = f"+{depth - shown} " if depth > shown else ""
        glyphs = self.glyphs
        if row is None or not row.starts or depth == 0:
            return f"{glyphs.through} " * shown + over
        corner = glyphs.root if row.entry.parent_id is None else glyphs.side
        return f"{glyphs.through} " * (shown - 1) + corner + glyphs.dash + over

    def _bullet(self, row: Row) -> str:
        if row.entry.kind in _LANDMARKS:
            return self.glyphs.mark
        return self.glyphs.spoken if who_of(row.entry)[0] in _SPOKEN else self.glyphs.entry

    def _room(self, graph: str) -> int:
        """Return how many cells are left for the content and the marks."""
        return self.width - self.number_width - cell_len(graph) - WHO_WIDTH - 4
