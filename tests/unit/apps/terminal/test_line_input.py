"""Lines are read whole from pipes and files, and Ctrl-C runs a callback."""

from __future__ import annotations

import asyncio
import os
import signal
import termios
from pathlib import Path

import pytest

from perdure.apps.terminal.line_input import TypedLines, interrupts, typed_ahead


async def test_lines_are_read_whole_from_a_pipe() -> None:
    reading, writing = os.pipe()
    lines = TypedLines(reading)
    assert not lines.is_terminal
    text = "første\r\nsecond".encode()
    for position in range(len(text)):
        os.write(writing, text[position : position + 1])
        await asyncio.sleep(0)
    assert await lines.next() == "første"
    os.close(writing)
    assert await lines.next() == "second"
    assert await lines.next() is None
    assert await lines.next() is None
    lines.close()
    os.close(reading)


async def test_file_can_be_read_like_typed_input(tmp_path: Path) -> None:
    file = tmp_path / "typed"
    file.write_bytes(b"one\n\ntwo\xff\n")
    descriptor = os.open(file, os.O_RDONLY)
    lines = TypedLines(descriptor)
    assert [await lines.next() for _ in range(4)] == ["one", "", "two\ufffd", None]
    os.close(descriptor)


async def test_cancelled_read_of_a_line_loses_no_input() -> None:
    reading, writing = os.pipe()
    lines = TypedLines(reading)
    waiting = asyncio.ensure_future(lines.next())
    await asyncio.sleep(0)
    waiting.cancel()
    os.write(writing, b"kept\n")
    assert await lines.next() == "kept"
    lines.close()
    os.close(reading)
    os.close(writing)


async def test_ctrl_c_during_the_interrupts_block_calls_the_callback() -> None:
    before = signal.getsignal(signal.SIGINT)
    pressed = asyncio.Event()
    with interrupts(pressed.set):
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.wait_for(pressed.wait(), 60)
    assert signal.getsignal(signal.SIGINT) is before


async def test_lines_put_back_are_read_again_before_other_lines() -> None:
    reading, writing = os.pipe()
    lines = TypedLines(reading)
    os.write(writing, b"one\ntwo\nthree\n")
    first = [await lines.next(), await lines.next()]
    assert lines.has_waiting
    lines.put_back(line for line in first if line is not None)
    assert [await lines.next() for _ in range(3)] == ["one", "two", "three"]
    assert not lines.has_waiting
    lines.close()
    os.close(reading)
    os.close(writing)


async def test_line_typed_during_a_cancelled_wait_is_not_lost() -> None:
    for steps in range(6):
        lines = TypedLines(0)
        waiting = asyncio.ensure_future(lines.waiting(60))
        await asyncio.sleep(0.01)
        lines.put_back(["typed"])
        for _ in range(steps):
            await asyncio.sleep(0)
        is_cancelled = waiting.cancel()
        await asyncio.wait((waiting,))
        assert waiting.cancelled() == is_cancelled == lines.has_waiting, steps


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (b"", ""),
        (b"hello", "hello"),
        (b"hello\r", "hello\n"),
        (b"one\rtwo", "one\ntwo"),
        ("né\r".encode(), "né\n"),
        (b"\x1b[Aa\x1bOBb\r", "ab\n"),
        (b"helo\x7flo\r", "hello\n"),
    ],
)
def test_pending_text_of_a_terminal_is_read(keys: bytes, text: str) -> None:
    ours, theirs = os.openpty()
    try:
        before = termios.tcgetattr(theirs)
        os.write(ours, keys)
        assert typed_ahead(theirs) == text
        assert termios.tcgetattr(theirs) == before
        assert typed_ahead(theirs) == ""
    finally:
        os.close(ours)
        os.close(theirs)


def test_pending_text_of_a_pipe_is_not_read() -> None:
    theirs, ours = os.pipe()
    try:
        os.write(ours, b"hello\n")
        assert typed_ahead(theirs) == ""
        assert os.read(theirs, 10) == b"hello\n"
    finally:
        os.close(ours)
        os.close(theirs)
