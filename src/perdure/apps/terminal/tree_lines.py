"""The lines of an outline as text: number, branch graph, who, the beginning of what, marks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from rich.cells import cell_len

from perdure.apps.terminal.outline import Fold, Line, Row
from perdure.apps.terminal.previews import WHO_WIDTH, preview_of, who_of
from perdure.apps.terminal.style import Meaning, Style
from perdure.apps.terminal.text import clip, one_line, pad
from perdure.session.ids import StreamId
from perdure.session.kinds import BranchSummary, Compaction

_LABEL_WIDTH = 30
_LEAST_WHAT = 8
"""Cells that the beginning of the content keeps, however deep its branch is."""


class Glyphs(msgspec.Struct, frozen=True):
    """What the graph is drawn with. Shape: one cell each."""

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
_MARKED = frozenset({Compaction.kind, BranchSummary.kind})


def draw(lines: Sequence[Line], own: StreamId, width: int, style: Style) -> Iterator[str]:
    """`lines` as text of at most `width` cells each; entries of other streams than `own` marked."""
    pen = _Pen(
        own=own,
        width=width,
        style=style,
        glyphs=Glyphs() if style.is_unicode else _ASCII,
        number_width=_number_width(lines, own),
        deepest=max((width - WHO_WIDTH - 24) // 4, 1),
    )
    for line in lines:
        yield pen.row(line) if isinstance(line, Row) else pen.fold(line)


def _number_width(lines: Sequence[Line], own: StreamId) -> int:
    rows = [line.entry for line in lines if isinstance(line, Row)]
    return max((len(str(e.seq)) + (e.stream != own) for e in rows), default=1)


class _Pen(msgspec.Struct, frozen=True):
    """Draws single lines; `deepest` is the depth from which on indentation stops growing."""

    own: StreamId
    width: int
    style: Style
    glyphs: Glyphs
    number_width: int
    deepest: int

    def row(self, row: Row) -> str:
        """One entry."""
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
        """The count of what is not shown."""
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
        if row.entry.kind in _MARKED:
            return self.glyphs.mark
        return self.glyphs.spoken if who_of(row.entry)[0] in _SPOKEN else self.glyphs.entry

    def _room(self, graph: str) -> int:
        """Cells left for the content and the marks."""
        return self.width - self.number_width - cell_len(graph) - WHO_WIDTH - 4
