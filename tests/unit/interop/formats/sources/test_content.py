from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codecs.lines import lines_of
from perdure.errors import FormatError
from perdure.interop.formats.sources import content as contents
from perdure.interop.formats.sources.content import (
    FileContent,
    Held,
    digest_of,
    end_of_lines,
    first_line,
    line_number_at,
    lines_in,
)
from perdure.session.ids import blob_hash

TEXT = st.lists(st.sampled_from([b"", b"\n", b"ab", b"\r", b"x" * 9, b" \n"]), max_size=9).map(
    b"".join
)


@pytest.fixture(autouse=True, scope="module")
def _small_chunks() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contents, "CHUNK_BYTES", 4)
        yield


@given(TEXT)
def test_lines_are_the_same_for_every_chunk_size(content: bytes) -> None:
    assert list(lines_in(Held(content))) == list(lines_of(content))


@given(TEXT, st.integers(0, 40), st.integers(0, 40))
def test_digest_of_a_byte_range_is_the_hash_of_its_bytes(
    content: bytes, begin: int, end: int
) -> None:
    begin, end = sorted((min(begin, len(content)), min(end, len(content))))
    assert digest_of(Held(content), begin, end) == blob_hash(content[begin:end])
    assert line_number_at(Held(content), begin) == content.count(b"\n", 0, begin) + 1


@given(TEXT)
def test_last_complete_line_is_found_from_the_end(content: bytes) -> None:
    assert end_of_lines(Held(content)) == content.rfind(b"\n") + 1


def test_first_line_is_first_nonblank_line() -> None:
    assert first_line(Held(b"\n  \nab\ncd")) == b"ab"
    assert first_line(Held(b"\n \n")) == b""


def test_bytes_added_after_opening_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"one\ntwo\n")
    with FileContent(path) as content:
        path.write_bytes(b"one\ntwo\nthree\n")
        assert (content.name, content.length) == ("a.jsonl", 8)
        assert content.read(4, 100) == b"two\n"
        content.cut(4)
        assert [line.content for line in lines_in(content)] == [b"one"]
        assert content.read(4, 4) == b""


def test_truncated_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"one\ntwo\n")
    with FileContent(path, "other") as content:
        path.write_bytes(b"one")
        with pytest.raises(FormatError, match="shorter"):
            content.read(0, 8)


def test_unreadable_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot be read"):
        FileContent(tmp_path / "nowhere")
    with pytest.raises(FormatError, match="cannot be read"):
        FileContent(tmp_path)
