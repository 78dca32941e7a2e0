"""The widgets of a transcript; each shows one item.

Only the module `text` creates the content of the widgets.
"""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Markdown, Static
from textual.widgets.markdown import MarkdownStream

from perdure.apps.terminal.output import count_of
from perdure.apps.terminal.text import one_line
from perdure.apps.tui.items import (
    Answer,
    Call,
    Item,
    Remark,
    Said,
    Sent,
    Thought,
    argument_line,
    argument_lines,
)
from perdure.apps.tui.text import diff_content, hanging, plain, shown

T = TypeVar("T", Sent, Thought, Call)

_TITLE_CELLS = 200
_FOCUSED = "reverse bold underline"  # without colours nothing is left of "reverse"
_RESULT_LINES = 400
"""Maximum number of result lines of an unfolded call; `perdure sessions read` prints all lines."""


class SaidBlock(Static):
    """A message of the user."""

    def __init__(self, item: Said) -> None:
        super().__init__(plain(item.text), markup=False)
        self._item = item

    def on_mount(self) -> None:
        """In inline mode (for screen readers), mark the message with a sign instead of a border."""
        if self.app.is_inline:  # pyright: ignore[reportUnknownMemberType] - of any app
            self.update(plain(f"> {self._item.text}"))


class RemarkBlock(Static):
    """The block of a `Remark`, which is a text that is not a message of the conversation."""

    def __init__(self, item: Remark) -> None:
        super().__init__(plain(item.text), markup=False)


class AnswerBlock(Markdown):
    """An answer of the model; it is rendered again as it grows. Links are shown, never opened."""

    def __init__(self, item: Answer) -> None:
        super().__init__("" if item.is_open else shown(item.text), open_links=False)
        self._item = item
        self._written = 0
        self._stream: MarkdownStream | None = None

    async def refresh_item(self) -> None:
        """Render the new content of the item."""
        new = self._item.text[self._written :]
        self._written = len(self._item.text)
        if new:
            self._stream = self._stream or Markdown.get_stream(self)
            await self._stream.write(shown(new))
        if not self._item.is_open and self._stream is not None:
            stream, self._stream = self._stream, None
            await stream.stop()

    def on_mount(self) -> None:
        """Record the length of the text that is already rendered."""
        if not self._item.is_open:
            self._written = len(self._item.text)

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        """Do nothing, because a link from a model can lead anywhere."""
        event.prevent_default()
        event.stop()


class FoldBlock(Static, Generic[T], can_focus=True):
    """One line with details below it, which the Enter key shows or hides."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "flip", "Unfold or fold")]

    def __init__(self, item: T) -> None:
        super().__init__("", markup=False)
        self.item = item
        self.is_unfolded = False

    def on_mount(self) -> None:
        """Draw the line."""
        self.redraw()

    def watch_has_focus(self, _has_focus: bool) -> None:  # noqa: FBT001 - Textual passes it so
        """Mark the line while it has the keyboard focus."""
        super().watch_has_focus(_has_focus)
        self.redraw()

    def action_flip(self) -> None:
        """Show or hide the details; the line itself stays visible."""
        self.fold(is_unfolded=not self.is_unfolded)
        self.call_after_refresh(self._show_first_line)

    def _show_first_line(self) -> None:
        if isinstance(self.parent, Widget) and self.virtual_region.y < self.parent.scroll_y:
            self.scroll_visible(animate=False, top=True)

    def on_click(self) -> None:
        """Show or hide the details."""
        self.action_flip()

    def fold(self, *, is_unfolded: bool) -> None:
        """Show or hide the details."""
        self.is_unfolded = is_unfolded
        self.redraw()

    async def refresh_item(self) -> None:
        """Draw the new content of the item."""
        self.redraw()

    def redraw(self) -> None:
        """Draw the title, and the details if they are unfolded."""
        mark = "▾ " if self.is_unfolded else "▸ "
        first = Content(mark).append(self.title())
        lines = [first.stylize(_FOCUSED) if self.has_focus else first]
        if self.is_unfolded:
            lines += self.body()
        self.update(Content("\n").join(lines))

    def title(self) -> Content:
        """Return the line that is always visible."""
        raise NotImplementedError

    def body(self) -> list[Content]:
        """Return the lines that can be folded."""
        raise NotImplementedError


class SentBlock(FoldBlock[Sent]):
    """A text file that the user sent."""

    def title(self) -> Content:
        """Return the name of the file and the number of its lines."""
        lines = count_of(self.item.text.count("\n") + 1, "line")
        return plain(f"attached: {one_line(self.item.name, _TITLE_CELLS)}, {lines}")

    def body(self) -> list[Content]:
        """Return the lines of the file."""
        room = self.size.width or 80
        return [hanging(f"    {line}", room) for line in self.item.text.split("\n")]


class ThoughtBlock(FoldBlock[Thought]):
    """Reasoning of the model."""

    def title(self) -> Content:
        """Return a title with the number of words in the reasoning."""
        words = len(self.item.text.split())
        return plain(f"reasoning, {words} words{' …' if self.item.is_open else ''}")

    def body(self) -> list[Content]:
        """Return the reasoning."""
        return [plain(line, "italic") for line in self.item.text.split("\n")]


class CallBlock(FoldBlock[Call]):
    """A tool call, its outcome and duration; if unfolded, also its arguments, result and diff."""

    def title(self) -> Content:
        """Return the tool, the beginning of the arguments, the outcome, and the duration."""
        item = self.item
        room = max((self.size.width or 80) - 6, 20)
        ending = item.outcome or "…"  # it runs, or waits for an answer: the status line says which
        if item.duration_ms is not None:
            ending += f", {_duration(item.duration_ms)}"
        left = room - len(item.tool) - len(ending) - 4
        given = one_line(argument_line(item), max(min(left, _TITLE_CELLS), 8))
        name = plain(f"{one_line(item.tool, 40)} ", "bold")
        style = "$text-error" if item.is_error else ""
        return Content.assemble(name, plain(f"{given}  "), plain(ending, style))

    def body(self) -> list[Content]:
        """Return the arguments, then the diff, then the result."""
        item, room = self.item, self.size.width or 80
        lines = [hanging(f"  {line}", room) for line in argument_lines(item)]
        if item.diff:
            lines += [plain("  change:"), diff_content(item.diff, "    ", room)]
        if item.result:
            result = item.result.split("\n")
            lines.append(plain("  result:"))
            is_whole = len(result) <= _RESULT_LINES + 1  # the rest needs a row, too
            listed = result if is_whole else result[:_RESULT_LINES]
            lines += [hanging(f"    {line}", room) for line in listed]
            if not is_whole:
                lines.append(plain(f"    [{len(result) - _RESULT_LINES} more lines]"))
        return lines

    def on_resize(self) -> None:
        """Fit the line to the new width."""
        self.redraw()


Block = SaidBlock | SentBlock | RemarkBlock | AnswerBlock | ThoughtBlock | CallBlock


def block_of(item: Item) -> Block:
    """Return the widget of `item`."""
    match item:
        case Said():
            return SaidBlock(item)
        case Sent():
            return SentBlock(item)
        case Answer():
            return AnswerBlock(item)
        case Thought():
            return ThoughtBlock(item)
        case Call():
            return CallBlock(item)
        case Remark():
            return RemarkBlock(item)


def _duration(took_ms: int) -> str:
    return f"{took_ms} ms" if took_ms < 1000 else f"{took_ms / 1000:.1f} s"
