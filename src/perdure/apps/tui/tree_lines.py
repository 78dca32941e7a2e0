"""The lines of a tree: drawing, selecting, folding, and moving between search matches."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from perdure.apps.terminal.outline import Fold, Line, Row, draw
from perdure.apps.terminal.style import Style
from perdure.apps.tui.text import painted
from perdure.apps.tui.tree_rows import (
    TreeState,
    folded_at,
    matches,
    unfolded,
    visible,
    with_visible,
)
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId

_EDGE_CELLS = 4
_LEAST_CELLS = 40


class TreeLines(OptionList):
    """The tree of the session `own`."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select", "Go on here")]

    def __init__(self, own: StreamId, style: Style) -> None:
        super().__init__(id="tree-lines", markup=False, compact=True)
        self.state = TreeState(())
        self._own = own
        self._drawn_style = style
        self._visible: list[Line] = []
        self._found: list[EntryId] = []

    def draw_state(self, state: TreeState, width: int) -> None:
        """Draw `state`; the same entry stays selected."""
        at = self._selected()
        self.state = state
        self._visible = visible(state)
        room = max(width - _EDGE_CELLS, _LEAST_CELLS)
        drawn = draw(self._visible, self._own, room, self._drawn_style)
        self.clear_options()
        self.add_options(Option(painted(line)) for line in drawn)
        if at is not None:
            self.select(at)

    def _redraw(self, state: TreeState) -> None:
        self.draw_state(state, self.screen.size.width)

    @property
    def line(self) -> Line | None:
        """The selected line."""
        at = self.highlighted
        return self._visible[at] if at is not None and at < len(self._visible) else None

    @property
    def entry(self) -> Entry | None:
        """The selected entry; None if the selected line is a count of folded rows."""
        line = self.line
        return line.entry if isinstance(line, Row) else None

    def _selected(self) -> EntryId | None:
        line = self.line
        if line is None:
            return None
        return line.entry.id if isinstance(line, Row) else line.hidden[0]

    def select(self, entry: EntryId | None) -> None:
        """Select `entry`; if it is folded, select the line with the count that includes it."""
        for place, each in enumerate(self._visible):
            if entry in (each.hidden if isinstance(each, Fold) else (each.entry.id,)):
                self.highlighted = place
                return

    # ------------------------------------------------------------ folding and search

    def fold(self) -> None:
        """Fold the branch of the selected entry, or the run of rows around it."""
        if (line := self.line) is not None:
            closed = self.state.closed
            self._redraw(folded_at(self.state, line))
            for branch in self.state.closed - closed:
                self.select(branch)

    def unfold(self) -> None:
        """Show the entries that the selected line hides."""
        if (line := self.line) is not None:
            self._redraw(unfolded(self.state, line))

    def seek(self, text: str) -> None:
        """Find the entries that contain `text`, and store them as matches."""
        self._found = matches(self.state, text)

    def go_to_match(self, step: int) -> tuple[int, int] | None:
        """Select the next match; if `step` is negative, the previous match.

        Returns the number of the selected match, counted from 1, and the number of all matches;
        None if there is no match.
        """
        if not self._found:
            return None
        order = [row.entry.id for row in self.state.rows]
        at, wanted = self._selected(), set(self._found)
        start = order.index(at) if at is not None and at in order else 0
        ahead = [*order[start + 1 :], *order[: start + 1]]
        if step < 0:
            ahead = [*reversed(order[:start]), *reversed(order[start:])]
        target = next(entry for entry in ahead if entry in wanted)
        self._redraw(with_visible(self.state, target))
        self.select(target)
        return self._found.index(target) + 1, len(self._found)
