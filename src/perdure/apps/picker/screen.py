"""The user's terminal, independent of stdin and stdout; it is in raw mode during the choice.

The picker draws on the alternate screen, so the terminal shows its previous content afterwards. The
state of the terminal is always restored.
"""

from __future__ import annotations

import codecs
import os
import select
import sys
import termios
import tty
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.cells import cell_len

from perdure.apps.cli.exits import NoTerminal
from perdure.apps.picker.selection import Choice, Chosen, State, after, keys_in, none_text
from perdure.apps.terminal.output import count_of, local_time
from perdure.apps.terminal.style import Style, style_for
from perdure.apps.terminal.text import clip, one_line, pad, safe

_TERMINAL = "/dev/tty"
_ENTER = "\x1b[?1049h\x1b[?2004h"  # the alternate screen; pasted text is between marks
_LEAVE = "\x1b[?2004l\x1b[?1049l"
_LOOK_S = 0.25
"""Interval at which the window size is checked while no key is pressed. Units: seconds."""

_ESCAPE_S = 0.05
"""Time to wait for the rest of a key's escape sequence. Units: seconds."""

_CHUNK_BYTES = 4_096


def choose(state: State) -> Choice | None:
    """Return the user's choice; None if the user cancels.

    Raises: NoTerminal.
    """
    with _terminal() as screen:
        style = style_for(screen)
        reader = _Keys(screen.fileno())
        while True:
            size = os.get_terminal_size(screen.fileno())
            _draw(
                screen, view_lines(state, max(size.columns, 20), max(size.lines, 7), style), state
            )
            while not (typed := reader.read_key()):
                if os.get_terminal_size(screen.fileno()) != size:
                    break
            for key in keys_in(typed):
                moved = after(state, key)
                if isinstance(moved, Chosen):
                    return moved.choice
                state = moved


class _Keys:
    """The decoded key input from the terminal `descriptor`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def read_key(self) -> str:
        """Return the next input; "" if there is no input for a while.

        The escape sequence of a key is never split.
        """
        if not self._is_ready(_LOOK_S):
            return ""
        text = self._read()
        while text.endswith(("\x1b", "\x1b[", "\x1bO")) and self._is_ready(_ESCAPE_S):
            text += self._read()
        return text

    def _is_ready(self, patience_s: float) -> bool:
        return bool(select.select([self._descriptor], [], [], patience_s)[0])

    def _read(self) -> str:
        content = os.read(self._descriptor, _CHUNK_BYTES)
        return self._decode(content) if content else "\x04"  # the terminal was closed


@contextmanager
def _terminal() -> Generator[TextIO]:
    """Open the terminal in raw mode, on its alternate screen."""
    if os.environ.get("TERM", "") in ("", "dumb"):
        raise NoTerminal
    try:
        descriptor = os.open(_TERMINAL, os.O_RDWR | os.O_NOCTTY)
    except OSError as error:
        raise NoTerminal from error
    encoding = sys.stderr.encoding or "utf-8"
    with os.fdopen(descriptor, "w", encoding=encoding, errors="replace") as screen:
        before = termios.tcgetattr(descriptor)
        try:
            tty.setraw(descriptor)
            screen.write(_ENTER)
            yield screen
        finally:
            screen.write(_LEAVE)
            screen.flush()
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _draw(screen: TextIO, lines: Iterable[str], state: State) -> None:
    """Draw the lines from the top of the screen, and the cursor after the typed text."""
    text = "\r\n".join(f"{line}\x1b[K" for line in lines)
    column = 3 + cell_len(safe(state.query))
    screen.write(f"\x1b[H{text}\x1b[J\x1b[1;{column}H")
    screen.flush()


_AROUND = 5
"""Number of lines around the list: the typed text, a rule, facts on the selected session, keys."""

_FACTS_CELLS = 34
_ENDINGS = {"ended": "  (ended)", "importing": "  (import not finished)"}
HINTS = ("Enter select", "Esc cancel", '"…" exact words')


def view_lines(state: State, columns: int, rows: int, style: Style) -> Iterator[str]:
    """Return the screen: at most `rows` lines of at most `columns` cells."""
    room = max(rows - _AROUND, 1)
    first = max(min(state.marked - room // 2, len(state.fitting) - room), 0)
    yield _query_line(state, columns, style)
    shown = state.fitting[first : first + room]
    for place, choice in enumerate(shown, first):
        yield _row(choice, columns, style, is_marked=place == state.marked)
    if not shown:
        yield style.paint(clip(f"  {none_text(state)}", columns), "faint")
    for _ in range(room - max(len(shown), 1)):
        yield ""
    yield style.paint(("─" if style.is_unicode else "-") * columns, "faint")
    yield from _choice_details(state.choice, columns, style)
    yield style.paint(clip(_key_line(state, columns, style), columns), "faint")


def _key_line(state: State, columns: int, style: Style) -> str:
    """Return the line of keys. In a narrow terminal, hints are omitted, the last one first."""
    tab = "Tab this folder" if state.is_everywhere else "Tab all folders"
    for count in range(len(HINTS), -1, -1):
        line = " · ".join((*HINTS[:count], tab))
        line = line if style.is_unicode else line.replace("·", "-").replace("…", "...")
        if cell_len(line) <= columns:
            return line
    return tab


def _query_line(state: State, columns: int, style: Style) -> str:
    where = "all folders" if state.is_everywhere else "this folder"
    count = f"{len(state.fitting):,} of {count_of(len(state.choices), 'session')}, {where}"
    room = columns - len(count) - 4
    query = safe(state.query)
    if room < 10:
        return clip(f"> {query}", columns)
    typed = query if len(query) <= room else "…" + query[-(room - 1) :]
    return f"{style.paint('>', 'user')} {pad(clip(typed, room), room)}  " + style.paint(
        count, "faint"
    )


def _row(choice: Choice, columns: int, style: Style, *, is_marked: bool) -> str:
    info = choice.info
    facts = f"{local_time(info.updated_at)}  {count_of(info.messages, 'message'):>14}"
    room = columns - 2 - _FACTS_CELLS
    mark = style.paint(">", "user") if is_marked else " "
    if room < 16:
        title = one_line(info.name, columns - 2) or info.id
        return f"{mark} {style.paint(title, 'strong' if is_marked else 'plain')}"
    title = pad(one_line(info.name, room) or "(nothing said yet)", room)
    return f"{mark} {style.paint(title, 'strong' if is_marked else 'plain')}" + style.paint(
        f"  {facts}", "faint"
    )


def _choice_details(choice: Choice | None, columns: int, style: Style) -> Iterator[str]:
    if choice is None:
        yield ""
        yield ""
        return
    info = choice.info
    ending = _ENDINGS.get(info.status, "")
    yield style.paint(clip(f"{info.id}{ending}", columns), "strong")
    yield style.paint(one_line(info.cwd or "(no folder)", columns), "faint")
