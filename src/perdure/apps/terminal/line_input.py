"""Reads typed or piped lines, and handles Ctrl-C, without blocking the event loop.

The terminal itself provides the editing of a line. This module holds no lock on stdin, so the
program can exit without waiting for a key.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
import sys
import termios
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

_CHUNK_BYTES = 65_536
_PATIENCE_S = 1.0

PASTE_S = 0.05
"""Maximum time between two lines of the same paste."""

KEYS = re.compile(r"\x1b(\[[0-9;]*[A-Za-z~]|O.)")
"""The escape sequences that arrow keys send while no line is edited."""


def piped_text(most_bytes: int) -> str | None:
    """Return the text that is piped into this process, cut at slightly more than `most_bytes`.

    Returns "" if stdin is a terminal, or if the input is empty. Returns None if nothing arrives for
    a second, because some programs start this process with a pipe that they never close.
    """
    descriptor = sys.stdin.fileno()
    if os.isatty(descriptor):
        return ""
    content = b""
    while len(content) <= most_bytes:
        if not content and not select.select([descriptor], [], [], _PATIENCE_S)[0]:
            return None
        chunk = os.read(descriptor, _CHUNK_BYTES)
        if not chunk:
            break
        content += chunk
    return content.decode(errors="replace").rstrip("\n")


def is_gone(descriptor: int) -> bool:
    """Return whether the terminal of `descriptor` was closed."""
    poll = select.poll()
    poll.register(descriptor, 0)  # a hangup is always reported
    return bool(poll.poll(0))


def typed_ahead(descriptor: int) -> str:
    """Return the text that was typed before the program reads keys, with its line ends.

    Waits until no more text arrives for `PASTE_S`, so that a paste is returned as a whole. Waits at
    most one second, because a key that is held down sends text all the time. Returns "" immediately
    if nothing was typed, if `descriptor` is no terminal, or if the process is a background job.
    """
    if not os.isatty(descriptor) or _is_in_background(descriptor):
        return ""
    before = termios.tcgetattr(descriptor)
    by_key = termios.tcgetattr(descriptor)
    by_key[3] &= ~termios.ICANON  # a line without its Enter can be read, too
    by_key[6][termios.VMIN], by_key[6][termios.VTIME] = 1, 0
    content, until = b"", time.monotonic() + _PATIENCE_S
    termios.tcsetattr(descriptor, termios.TCSANOW, by_key)
    try:
        while select.select([descriptor], [], [], PASTE_S if content else 0)[0]:
            chunk = os.read(descriptor, _CHUNK_BYTES)
            content += chunk
            if not chunk or time.monotonic() > until:
                break
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)
    text = content.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    return _erased(KEYS.sub("", text).replace("\0", ""))


def _erased(text: str) -> str:
    """Apply the Backspaces in `text` that arrived too late for the terminal to apply."""
    kept: list[str] = []
    for character in text:
        if character not in "\x7f\b":
            kept.append(character)
        elif kept and kept[-1] != "\n":
            kept.pop()
    return "".join(kept)


def _is_in_background(descriptor: int) -> bool:
    try:
        return os.tcgetpgrp(descriptor) != os.getpgrp()
    except OSError:  # not the terminal that controls this process: it has no jobs
        return False


class TypedLines:
    """The lines of stdin, in order; None at the end of stdin."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = sys.stdin.fileno() if descriptor is None else descriptor
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._rest = b""
        self.has_ended = False
        self._is_watched = False

    @property
    def is_terminal(self) -> bool:
        """Whether stdin is a terminal."""
        return os.isatty(self._descriptor)

    @property
    def has_waiting(self) -> bool:
        """Whether a line is available, so that `next` would return immediately."""
        return not self._lines.empty()

    def put_back(self, lines: Iterable[str]) -> None:
        """Put `lines` back, before the other unread lines."""
        later = [self._lines.get_nowait() for _ in range(self._lines.qsize())]
        for line in (*lines, *later):
            self._lines.put_nowait(line)

    async def next(self) -> str | None:
        """Return the next line without its line break; None at the end of the input."""
        if self._lines.empty():
            if self.has_ended:
                return None
            if not self._is_watched:
                self._begin()
        line = await self._lines.get()
        if line is None:
            self.has_ended = True
        return line

    async def waiting(self, patience_s: float) -> str | None:
        """Return the next line if it arrives within `patience_s`.

        Returns None if no line arrives in that time, or at the end of the input.
        """
        if self.has_ended:
            return None
        try:
            # Not wait_for: in 3.11 it drops a cancellation that comes together with the line.
            async with asyncio.timeout(patience_s):
                line = await self._lines.get()
        except TimeoutError:
            return None
        self.has_ended = line is None
        return line

    def close(self) -> None:
        """Stop reading."""
        if self._is_watched:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._is_watched = False

    def _begin(self) -> None:
        try:
            asyncio.get_running_loop().add_reader(self._descriptor, self._read)
            self._is_watched = True
        except PermissionError:  # a plain file, which is always ready and cannot be waited for
            while not self.has_ended and self._read():
                pass

    def _read(self) -> bool:
        chunk = os.read(self._descriptor, _CHUNK_BYTES)
        if not chunk:
            if self._rest:
                self._put(self._rest)
            self._rest = b""
            self._lines.put_nowait(None)
            self.close()
            return False
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._put(line)
        return True

    def _put(self, line: bytes) -> None:
        self._lines.put_nowait(line.decode(errors="replace").removesuffix("\r"))


@contextmanager
def interrupts(handler: Callable[[], object]) -> Generator[None]:
    """Within the block, make Ctrl-C call `handler` instead of raising KeyboardInterrupt."""
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)
    loop.add_signal_handler(signal.SIGINT, handler)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
