"""Lines pasted into the chat are stored in their order, with their indentation."""

from __future__ import annotations

import os
import pty
import select
import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest

import perdure
from tests.acceptance.cli.conftest import PATIENCE_S, World
from tests.concurrency.test_message_order import said_in
from tests.fakes.forked_commands import command_at_terminal

CODE = ("def f(x):", "    if x:", "\treturn 1  ", "    return 2", "print(f(1))", "  # end")
MANY = tuple(f"{'  ' * (n % 4)}line {n}" for n in range(60))


class Terminal:
    """A chat at a terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._shown = ""
        self._deadline = time.monotonic() + PATIENCE_S

    def read(self) -> str:
        """Return all output so far."""
        assert time.monotonic() < self._deadline, self._shown
        if select.select([self._descriptor], [], [], 0.05)[0]:
            self._shown += os.read(self._descriptor, 65_536).decode(errors="replace")
        return self._shown

    def type(self, text: str) -> None:
        """Type the whole `text` without a pause."""
        os.write(self._descriptor, text.encode())


@contextmanager
def terminal(world: World, *words: str) -> Generator[Terminal]:
    """A chat with the offline model, or with the options `words`."""
    ours, theirs = pty.openpty()
    environment = {**world.environment, "TERM": "xterm"}
    try:
        with command_at_terminal(("chat", *words), environment, world.folder, theirs):
            yield Terminal(ours)
    finally:
        os.close(theirs)
        os.close(ours)


def said(world: World) -> list[str]:
    """Return the user texts of the only session in the store, in the order of storage."""
    if not world.file.exists():
        return []
    with perdure.blocking.open(f"sqlite:///{world.file}") as store:
        sessions = store.recent()
        return said_in(store.open(sessions[0].id).entries()) if sessions else []


@pytest.mark.parametrize(
    "lines", [CODE, pytest.param(MANY, marks=pytest.mark.all_only)], ids=["code", "many"]
)
def test_pasted_lines_keep_their_order_and_indentation(
    world: World, lines: tuple[str, ...]
) -> None:
    """A terminal without bracketed paste sends lines; each message contains one or more lines."""
    with terminal(world, "--display", "lines") as chat:
        while "> " not in chat.read():
            pass
        chat.type("".join(f"{line}\n" for line in lines))
        while len("\n".join(said(world)).split("\n")) < len(lines):
            chat.read()
    assert "\n".join(said(world)).split("\n") == list(lines)


def test_text_typed_while_the_chat_starts_is_sent_only_after_enter(world: World) -> None:
    with terminal(world, "-m", "scripted:echo") as chat:
        chat.type("early")
        while "/help" not in chat.read():
            pass
        chat.type(" words\x1b\rand a second line\r")  # ESC CR is Alt-Enter
        while not said(world):
            chat.read()
    assert said(world) == ["early words\nand a second line"]
