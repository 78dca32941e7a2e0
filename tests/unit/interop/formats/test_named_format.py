"""An explicit format must match a line of the file."""

from __future__ import annotations

import pytest

from perdure.errors import FormatError
from perdure.interop.reports import FormatName
from tests.fakes.sources import FILES, empty_store, imported, pi_file


@pytest.mark.parametrize("format", FILES)
async def test_requested_format_is_rejected_for_a_file_of_another_format(
    format: FormatName,
) -> None:
    for other, (names, read) in FILES.items():
        for name in names:
            store = empty_store()
            if other == format:
                assert (await imported(store, read(name), format=format)).format == format
                continue
            with pytest.raises(FormatError, match=f"no line of it is a record of {format}"):
                await imported(store, read(name), format=format)
            assert await store.sessions() == []


@pytest.mark.parametrize("content", [b"", b"1\n2\n", b"hello\n", b'{"a":1}\n', b'{"type":"x"}\n'])
async def test_requested_format_is_rejected_for_an_unrecognized_file(content: bytes) -> None:
    for format in FILES:
        with pytest.raises(FormatError):
            await imported(empty_store(), content, format=format)


async def test_requested_format_needs_only_one_matching_line() -> None:
    one = pi_file("v3.jsonl").split(b"\n")[1] + b"\n"
    content = b'{"type":"x"}\n' * 300 + one
    report = await imported(empty_store(), content, format="pi")
    assert report.entries == 301
