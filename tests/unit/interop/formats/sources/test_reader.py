from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given

from perdure.errors import FormatError
from perdure.interop.formats.codex import reader as codex
from perdure.interop.formats.items import Item
from perdure.interop.formats.pi import reader as pi
from perdure.interop.formats.registry import FORMATS
from perdure.interop.formats.sources.content import CHUNK_BYTES, FileContent, Held
from perdure.interop.formats.sources.parent_links import Linker
from perdure.interop.formats.sources.reader import Bounds, Source, Stretch, read_source
from tests.fakes.sources import claude_file, growing_files, pi_file, spoilt

FILES = growing_files()
PIECES = Bounds(whole_bytes=0)

READERS = {name: each.reader for name, each in FORMATS.items() if each.reader is not None}


def stretches_of(source: Source, piece_bytes: int, begin: int = 0) -> list[Stretch]:
    return list(source.stretches(begin, piece_bytes))


def items_of(stretches: list[Stretch]) -> list[Item]:
    return [item for stretch in stretches for item in stretch.items]


@given(spoilt(FILES))
def test_source_read_in_pieces_gives_the_same_items(content: bytes) -> None:
    for format, reader in READERS.items():
        whole = read_source(Held(content), format, reader)
        source = read_source(Held(content), format, reader, bounds=PIECES)
        stretches = stretches_of(source, 300)
        assert items_of(stretches) == whole.parsed.items
        for name in ("header", "leaf", "lines", "malformed", "header_lines", "warnings"):
            assert getattr(source.parsed, name) == getattr(whole.parsed, name), name
        media = {blob for stretch in stretches for blob in stretch.blobs}
        assert media == set(whole.parsed.blobs)
        numbers = {number for stretch in stretches for number in stretch.malformed}
        assert numbers == {line.number for line in whole.parsed.malformed}
        ends = [stretch.end for stretch in stretches]
        assert ends == sorted(ends)
        assert [stretch.is_last for stretch in stretches] == [False] * (len(ends) - 1) + [True]
        assert ends[-1] == len(content)


def test_small_source_is_read_in_one_piece() -> None:
    [stretch] = stretches_of(read_source(Held(pi_file("v3.jsonl")), "pi", pi.Reader), 1)
    assert (stretch.is_last, stretch.end) == (True, len(pi_file("v3.jsonl")))


def test_file_in_reverse_order_is_read_in_pieces() -> None:
    header, *records = pi_file("v3.jsonl").splitlines(keepends=True)
    source = read_source(Held(header + b"".join(records[::-1])), "pi", pi.Reader, bounds=PIECES)
    stretches = stretches_of(source, 200)
    assert max(len(stretch.items) for stretch in stretches) < len(records) / 2
    assert len([stretch for stretch in stretches if stretch.items]) > 5


def test_first_piece_contains_everything_that_was_imported_before() -> None:
    content = claude_file("tools.jsonl")
    make = READERS["claude-code"]
    source = read_source(Held(content), "claude-code", make, bounds=PIECES)
    begin = len(content) // 2
    stretches = stretches_of(source, 300, begin)
    assert min(stretch.end for stretch in stretches) >= begin
    assert items_of(stretches) == items_of(stretches_of(source, 300))


def test_file_changed_before_second_reading_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(pi_file("v3.jsonl"))
    with FileContent(path) as content:
        source = read_source(content, "pi", pi.Reader, bounds=PIECES)
        path.write_bytes(pi_file("v3.jsonl").replace(b"\n", b" ", 3))
        with pytest.raises(FormatError, match=r"a\.jsonl.*changed while it was read"):
            stretches_of(source, 300)


def test_chained_records_give_the_same_items_whole_and_in_pieces() -> None:
    content = claude_file("chain.jsonl")
    make = partial(READERS["claude-code"])
    source = read_source(Held(content), "claude-code", make, bounds=PIECES)
    whole = read_source(Held(content), "claude-code", make)
    assert items_of(stretches_of(source, 1)) == whole.parsed.items


def test_progress_is_reported_per_line_and_at_end() -> None:
    told: list[tuple[int, int]] = []

    def tell(done: int, total: int) -> None:
        told.append((done, total))

    content = (b'{"a":"' + b"x" * 10_000 + b'"}\n') * (3 * CHUNK_BYTES // 10_000)
    read_source(Held(content), "pi", pi.Reader, tell)
    assert told == sorted(set(told))
    assert len(told) >= 3
    assert told[-1] == (len(content), len(content))


def never(*_: object) -> bool:
    return False


@given(spoilt(FILES))
def test_fast_and_full_parsing_paths_give_the_same_result(content: bytes) -> None:
    for format, reader in READERS.items():
        short = read_source(Held(content), format, reader).parsed
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Linker, "is_plain", never)
            patch.setattr(codex.Reader, "take_plain", never)
            assert read_source(Held(content), format, reader).parsed == short
