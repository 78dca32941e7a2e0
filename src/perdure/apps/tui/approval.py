"""A question of a turn: everything that will happen, and the possible answers.

A key press answers the question, but a paste does not. Paste events are ignored. If a terminal
without bracketed paste sends several keys together, these keys cancel the answer. A key that was
pressed before the question was visible is ignored, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from textwrap import wrap
from typing import ClassVar

from rich.cells import chop_cells
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Button, Input, Static

from perdure.apps.chat.questions import NO_ALWAYS, Asked, Given
from perdure.apps.terminal.approvals import BAR, MORE, approval_lines
from perdure.apps.terminal.output import count_of
from perdure.apps.tui.text import plain, shown

_KEYS = {"allow": ("y", "allow once"), "always": ("a", "always"), "deny": ("n", "deny")}
_OTHER_KEYS = {"d": ("note", "deny, why"), "s": ("show_all", "show all")}
REST = "    … "
_OTHER_ROWS = 10
"""Number of rows that show no facts: a message, borders, question, answers, note, gauge and keys.
"""
_LEAST_ROWS = 3
_OTHER_CELLS = 6
_LEAST_CELLS = 20

_EDGE_S = 0.4
"""How long a new question ignores keys: users might have pressed keys before they saw it."""

_BURST_S = 0.08
"""An answer counts when no other key follows within this time."""


class Approval(Vertical, can_focus=True):
    """The panel that shows one question."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "show_all", "Show all", show=False),
        Binding("d", "note", "Deny, note", show=False),
        Binding("escape", "leave_note", "Go back", show=False),
        Binding("down,j", "scroll(1)", "Scroll", key_display="↑↓"),
        Binding("up,k", "scroll(-1)", "Scroll", show=False),
    ]

    def __init__(
        self, asked: Asked, read_whole: Callable[[], Awaitable[list[str]]], rows: Callable[[], int]
    ) -> None:
        super().__init__(id="approval")
        self._asked = asked
        self._read_whole = read_whole
        self._rows = rows
        self._given: asyncio.Future[Given] = asyncio.get_running_loop().create_future()
        self._lines = list(approval_lines(asked.question))
        self._length = 0
        self._hints = [] if asked.hint is None else [asked.hint]
        self._answers = dict(_answer_keys(asked.question.choices))
        self.ready_at = 0.0
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        """Lay out the question, its facts, and the answers."""
        yield Static(plain(self._asked.question_text, "bold"), id="question", markup=False)
        with VerticalScroll(id="facts", can_focus=False):
            yield Static("", markup=False)
        yield Static("", id="more", markup=False)
        yield Static("", id="always", markup=False)
        yield Static("", id="hint", markup=False)
        with Horizontal(id="answers"):
            for key, (choice, words) in self._answers.items():
                label = Content.assemble(plain(f"[{key}]", "bold"), plain(f" {words}"))
                yield Button(label, name=choice, compact=True)
            for key, (action, words) in _OTHER_KEYS.items():
                if self.check_action(action, ()):
                    label = Content.assemble(plain(f"[{key}]", "bold"), plain(f" {words}"))
                    yield Button(label, id=f"key-{action}", compact=True)
        yield Input(placeholder="why not (Enter sends, Escape goes back)", id="note", compact=True)

    def on_mount(self) -> None:
        """Set the keyboard focus to the panel; accept keys after a short delay."""
        self.ready_at = asyncio.get_running_loop().time() + _EDGE_S
        self.query_one("#note", Input).display = False
        facts = self.query_one("#facts", VerticalScroll)
        for changed in ("scroll_y", "size"):
            self.watch(facts, changed, self._count_hidden, init=False)
        self._draw()
        self.focus()

    def on_resize(self) -> None:
        """Draw the panel for the new size."""
        self._draw()

    def _draw(self) -> None:
        facts = self.query_one("#facts", VerticalScroll)
        room = max(self.screen.size.width - _OTHER_CELLS, _LEAST_CELLS)
        wrapped = len(chop_cells(self._asked.question_text, room)) - 1
        rows = max(self._rows() - _OTHER_ROWS - wrapped, _LEAST_ROWS)
        # The line about "always" is the last one. It stays visible, unless it is very long.
        question = self._asked.question
        has_always = question.grant is not None and "always" in question.choices
        pinned = facts_content(self._lines[-1:] if has_always else (), room)
        height = pinned.plain.count("\n") + 1
        is_pinned = has_always and height <= max(rows // 2, _LEAST_ROWS)
        always = self.query_one("#always", Static)
        always.display = is_pinned
        always.update(pinned)
        rows -= is_pinned * height
        hints = [f"  {line}" for each in self._hints for line in wrap(each, room)]
        is_small = rows - max(len(hints) - 1, 0) <= _LEAST_ROWS
        hints = [] if is_small else hints  # the answers have to stay visible
        self.query_one("#hint").display = bool(hints)
        self.query_one("#hint", Static).update(Content("\n").join(map(plain, hints)))
        has_no_gap = is_small or bool(hints)  # no empty line above the answers
        self.query_one("#answers").set_class(has_no_gap, "-after-hint")
        rows = max(rows - max(len(hints) - 1, 0), _LEAST_ROWS)
        content = facts_content(self._lines[:-1] if is_pinned else self._lines, room)
        self._length = content.plain.count("\n") + 1
        is_longer = self._length > rows
        self.query_one("#more").display = is_longer
        facts.styles.max_height = rows - is_longer
        facts.query_one(Static).update(content)
        self.call_after_refresh(self._count_hidden)
        self.call_after_refresh(self.refresh_bindings)

    def _count_hidden(self) -> None:
        """Show how many lines of the facts are below the visible ones."""
        facts = self.query_one("#facts")
        hidden = self._length - round(facts.scroll_y) - facts.size.height
        told = f"… {count_of(hidden, 'more line')}, ↓" if hidden > 0 else "… the end; more above, ↑"
        self.query_one("#more", Static).update(plain(told, "bold"))

    async def answer(self) -> Given:
        """Wait for the user's answer and return it."""
        return await self._given

    # ------------------------------------------------------------ keys

    def on_key(self, event: events.Key) -> None:
        """Answer if the key belongs to an answer, unless more keys arrive together with it."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
            return
        found = self._answers.get(event.key)
        if found is None or not self.has_focus:
            if event.key == "a" and self.has_focus and "allow" in self._asked.question.choices:
                self._hints = [NO_ALWAYS, *filter(None, (self._asked.hint,))]
                self._draw()
            return
        event.stop()
        if asyncio.get_running_loop().time() >= self.ready_at:
            self._timer = self.set_timer(_BURST_S, lambda: self._give(found[0]))

    def _on_paste(self, event: events.Paste) -> None:
        event.stop()

    async def on_button_pressed(self, event: Button.Pressed) -> None:
        """Give the answer of the pressed button, or run the button's action."""
        event.stop()
        if event.button.name is not None:
            self._give(event.button.name)
        elif event.button.id is not None:
            await self.run_action(event.button.id.removeprefix("key-"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Deny the call, with the typed note."""
        event.stop()
        self._give("deny", event.value.strip() or None)

    def _give(self, choice: str, note: str | None = None) -> None:
        if not self._given.done():
            self._given.set_result(Given(choice, note))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return False for keys that do nothing for this question."""
        if action == "note":
            return "deny" in self._asked.question.choices
        if action == "leave_note":  # without a note, Escape stops the turn
            return self.is_mounted and self.query_one("#note").display
        if action == "scroll":
            return self.is_mounted and self.query_one("#facts").max_scroll_y > 0
        return self._asked.question.arguments is not None if action == "show_all" else True

    def action_note(self) -> None:
        """Open the field for a note to the model."""
        note = self.query_one("#note", Input)
        note.display = True
        note.focus()

    def action_leave_note(self) -> None:
        """Close the note field; the question stays open."""
        self.query_one("#note", Input).display = False
        self.focus()

    def action_scroll(self, lines: int) -> None:
        """Scroll the facts."""
        self.query_one("#facts").scroll_relative(y=lines, animate=False)

    def scroll_page(self, direction: int) -> None:
        """Scroll the facts by a page."""
        self.action_scroll(direction * max(self.query_one("#facts").size.height - 1, 1))

    async def action_show_all(self) -> None:
        """Show all arguments and the diff in full."""
        self._lines = await self._read_whole()
        self._draw()


def facts_content(lines: Iterable[str], width: int) -> Content:
    """Return the lines of an approval, at most `width` cells wide, with the change to a file first.

    The continuation of a wrapped line begins with a mark, so that model text never begins a line.
    In a diff, colours only repeat the meaning of the signs + and -.
    """
    change: list[Content] = []
    others: list[Content] = []
    is_diff = False
    for line in lines:
        is_diff = line == "  change:" or (is_diff and (line.startswith((BAR, MORE))))
        sign = line[len(BAR) : len(BAR) + 1] if is_diff else ""
        style = {"+": "$text-success", "-": "$text-error"}.get(sign, "")
        first, *rest = chop_cells(shown(line), width - len(REST)) or [""]
        pieces = [first, *(REST + piece for piece in rest)]
        (change if is_diff else others).extend(plain(piece, style) for piece in pieces)
    return Content("\n").join([*change, *others])


def _answer_keys(choices: Sequence[str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Return, for each choice, its key and its description."""
    for number, choice in enumerate(choices, 1):
        key, words = _KEYS.get(choice, (str(number), choice))
        yield key, (choice, words)
