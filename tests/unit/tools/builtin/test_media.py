"""The tool that reads texts stored in the session."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import ToolDenied
from perdure.tools.builtin.media import PAGE_BYTES, read_media
from perdure.tools.execution import ToolRun
from tests.fakes.tool_calls import Tools

HANDLE = f"media://sha256-{'a' * 64}"


async def read(content: bytes, **args: object) -> ToolRun:
    async def held(handle: str) -> bytes:
        if handle != HANDLE:
            raise ToolDenied("read_media", "this session does not hold it")
        return content

    return await Tools(Path(), read_media=held).run(read_media, **{"handle": HANDLE, **args})


async def test_text_is_read_completely_or_in_part() -> None:
    assert (await read(b"hello")).output.text == "hello"
    assert (await read(b"hello", start=1, end=3)).output.text == "el"
    assert (await read("é!".encode(), start=1)).output.text == "!"


async def test_long_media_text_ends_with_the_next_start_position() -> None:
    run = await read(b"x" * (PAGE_BYTES + 5))
    assert run.output.text.endswith(f"; go on with start {PAGE_BYTES}]")
    assert run.whole is None
    rest = await read(b"x" * (PAGE_BYTES + 5), start=PAGE_BYTES)
    assert rest.output.text == "xxxxx"


async def test_media_handle_of_another_session_is_refused() -> None:
    run = await read(b"x", handle=f"media://sha256-{'b' * 64}")
    assert (run.outcome, run.error_code) == ("refused", "tool_denied")


@pytest.mark.parametrize("handle", ["", "sha256-" + "a" * 64, HANDLE.upper(), HANDLE + "/../x"])
async def test_malformed_handle_is_rejected(handle: str) -> None:
    assert (await read(b"x", handle=handle)).error_code == "invalid_arguments"


async def test_binary_media_is_described_by_size() -> None:
    assert (await read(b"\x89PNG\0")).output.text == "read_media: it is no text (5 bytes)"
    assert (await read(b"x", start=9)).outcome == "error"


async def test_tool_without_session_has_no_media() -> None:
    assert (await Tools(Path()).run(read_media, handle=HANDLE)).error_code == "tool_unavailable"
