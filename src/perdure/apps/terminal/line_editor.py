"""Reads lines from a terminal with readline: history, completion, and pastes of several lines.

A thread waits for the line, so the event loop continues to run. The thread is a daemon, so that the
program can exit without waiting for a key.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import termios
import threading
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

_PASTE_OFF = b"\x1b[?2004l"


def line_editor() -> LineEditor | None:
    """Return an editor for this terminal; None if readline cannot edit on it."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if not is_terminal or os.environ.get("TERM", "") in ("", "dumb"):
        return None
    try:
        return LineEditor(importlib.import_module("readline"))
    except ImportError:  # a Python without it
        return None


class LineEditor:
    """Reads lines with `readline`.

    A pasted text is one line of input, and keeps its line breaks.
    """

    def __init__(self, readline: ModuleType) -> None:
        self._readline: Any = readline
        self._before = termios.tcgetattr(sys.stdin.fileno())
        self._reading: asyncio.Future[str | None] | None = None
        if "libedit" not in (readline.__doc__ or ""):
            self._readline.parse_and_bind("set enable-bracketed-paste on")
            self._readline.parse_and_bind("tab: complete")
        self._readline.set_auto_history(False)
        self._readline.set_completer_delims(" \t\n")

    @property
    def is_reading(self) -> bool:
        """Whether a line is being typed, or was typed and has not been returned by `read` yet."""
        return self._reading is not None

    def use_history(self, texts: Iterable[str]) -> None:
        """Let the history keys recall `texts`, newest first."""
        self._readline.clear_history()
        for text in reversed(list(texts)):
            self._readline.add_history(text)

    def complete_with(self, offers: Callable[[str], list[str]]) -> None:
        """Complete the word before the cursor with the texts that `offers` returns for it."""

        def completer(word: str, place: int) -> str | None:
            found = offers(word)
            return found[place] if place < len(found) else None

        self._readline.set_completer(completer)

    async def read(self, prompt: str) -> str | None:
        """Return the next line; None at the end of input.

        If the caller stops waiting while a line is being typed, the next call returns this line.
        """
        reading = self._reading
        if reading is None:
            reading = self._reading = asyncio.get_running_loop().create_future()
            threading.Thread(target=self._read, args=(prompt, reading), daemon=True).start()
        elif not reading.done():
            self.show_again(prompt)
        line = await asyncio.shield(reading)
        self._reading = None
        if line and line.strip():
            self._readline.add_history(line)
        return line

    def show_again(self, prompt: str) -> None:
        """Show the prompt and the typed text again, below text that was printed in between."""
        sys.stdout.write(prompt + str(self._readline.get_line_buffer()))
        sys.stdout.flush()

    def _read(self, prompt: str, reading: asyncio.Future[str | None]) -> None:
        try:
            line = input(prompt)
        except (EOFError, OSError, ValueError):
            line = None

        def tell() -> None:
            if not reading.done():
                reading.set_result(line)

        try:
            reading.get_loop().call_soon_threadsafe(tell)
        except RuntimeError:  # the loop is closed: the program has ended
            return

    def drop_typed(self) -> None:
        """Drop text that was typed before the question was visible, because it is not an answer."""
        if self._reading is not None and self._reading.done():
            self._reading = None
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)

    def close(self) -> None:
        """Restore the terminal to its earlier state."""
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._before)
        if self._reading is not None and not self._reading.done():
            os.write(sys.stdout.fileno(), _PASTE_OFF)
