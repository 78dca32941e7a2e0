from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import FormatError
from perdure.interop.formats.logs import LogFile, as_new
from perdure.interop.formats.native import Bundle, write_bundle
from perdure.interop.formats.sources.content import FileContent, Held
from perdure.session.codec import encode, new_side
from perdure.session.entries import Entry, NewEntry, Sibling
from perdure.session.ids import EntryId, StreamId, blob_hash, entry_id
from perdure.session.info import StreamHeader
from perdure.session.ledger import TurnFinished, TurnStarted
from perdure.session.messages import user
from perdure.session.notes import LeafMoved

S, OTHER = StreamId("s"), StreamId("other")
HEADER = StreamHeader(S, 1)


def said(seq: int, text: str = "hi", parent: str | None = "") -> Entry:
    above = entry_id(S, seq - 1) if seq else None
    place = above if parent == "" else None if parent is None else EntryId(parent)
    return Entry(S, seq, "tree", place, None, seq, "message", 1, encode(user(text)))


def side(seq: int, new: NewEntry, about: str | None = None) -> Entry:
    target = None if about is None else EntryId(about)
    return Entry(S, seq, "side", None, target, seq, new.kind, new.v, new.body)


def log_of(
    *entries: Entry, aliases: dict[str, EntryId] | None = None, blobs: tuple[bytes, ...] = ()
) -> LogFile:
    return LogFile(Held(write_bundle(Bundle(HEADER, entries, aliases or {}, blobs)), "a.jsonl"))


@given(st.lists(st.text(max_size=30), max_size=12), st.integers(1, 300), st.integers(0, 12))
def test_joined_log_pieces_equal_the_remaining_log(
    texts: list[str], piece_bytes: int, first: int
) -> None:
    entries = [said(seq, text) for seq, text in enumerate(texts)]
    stretches = list(log_of(*entries).stretches(first, S, piece_bytes))
    assert [entry for stretch in stretches for entry in stretch.entries] == entries[first:]
    assert all(stretch.entries for stretch in stretches)


def test_content_is_yielded_with_the_first_entry_that_references_it() -> None:
    one, two, unnamed = b"1" * 50, b"2" * 50, b"3"
    texts = [blob_hash(one), "none", f"{blob_hash(two)} {blob_hash(one)}", blob_hash(b"not here")]
    entries = [said(seq, text) for seq, text in enumerate(texts)]
    log = log_of(*entries, blobs=(one, two, unnamed))
    assert [each.blobs for each in log.stretches(0, S, 1)] == [(one,), (), (two,), ()]
    assert [set(each.blobs) for each in log.stretches(0, S, 10_000)] == [{one, two}]
    assert [set(each.blobs) for each in log.stretches(2, S, 10_000)] == [{one, two}]


def test_entry_ids_and_references_are_rewritten_for_another_stream() -> None:
    moved = side(2, new_side(LeafMoved(EntryId("s/0"))), about="s/1")
    log = log_of(said(0), said(1), moved, aliases={"x": EntryId("s/1"), "y": EntryId("t/0")})
    entries = [log.entry(seq, OTHER) for seq in range(3)]
    assert [entry.id for entry in entries] == ["other/0", "other/1", "other/2"]
    assert (entries[1].parent_id, entries[2].about) == ("other/0", "other/1")
    assert entries[2].body == new_side(LeafMoved(EntryId("other/0"))).body
    assert [log.alias(seq) for seq in range(3)] == [None, "x", None]
    assert log.in_common(entries, 0, OTHER) == 3
    assert log.in_common(entries, 0, S) == 0
    assert log.in_common([*entries, said(3)], 0, OTHER) == 3


@pytest.mark.parametrize(
    "entries",
    [
        (said(0), said(1, parent="s/1")),
        (said(0), said(1, parent="s/7")),
        (said(0), said(1, parent="s/x")),
        (said(0), said(1, parent="elsewhere/0")),
        (side(0, new_side(LeafMoved(None))), said(1)),
        (said(0), side(1, new_side(LeafMoved(EntryId("s/9"))))),
        (said(0), side(1, new_side(LeafMoved(None)), about="s/1")),
        (said(0), side(1, new_side(TurnFinished("stop")))),
        (side(0, new_side(TurnStarted(0, "a"))), side(1, new_side(TurnStarted(0, "a")))),
    ],
)
def test_check_of_an_invalid_log_raises_format_error(entries: tuple[Entry, ...]) -> None:
    log = log_of(*entries)
    with pytest.raises(FormatError, match="it is not a log"):
        log.check()


def test_invalid_parent_is_found_after_many_entries() -> None:
    text = "x" * 40_000  # two fill what is looked at together
    log_of(*(said(seq, text) for seq in range(5)), said(5, parent="s/0")).check()
    log = log_of(*(said(seq, text) for seq in range(5)), said(5, parent="s/9"), said(6))
    with pytest.raises(FormatError, match="it is not a log"):
        log.check()


def test_empty_foreign_id_is_rejected() -> None:
    with pytest.raises(FormatError, match="foreign id"):
        log_of(said(0), aliases={"": EntryId("s/0")}).check()


def test_turns_before_the_given_entry_are_not_found() -> None:
    turn = (side(1, new_side(TurnStarted(0, "a"))), side(2, new_side(TurnFinished("stop"))))
    log = log_of(said(0), *turn, said(3, parent="s/0"))
    assert [log.has_turns(first) for first in range(4)] == [True, True, True, False]
    assert not log_of(said(0)).has_turns(0)


def test_log_piece_size_limits_the_number_of_entries() -> None:
    log = log_of(*(said(seq) for seq in range(4)))
    assert [log.some(first, 1) for first in range(4)] == [1, 1, 1, 1]
    assert [log.some(first, 10_000) for first in range(4)] == [4, 3, 2, 1]


@pytest.mark.parametrize("old", [b"hello", b"base64"])
def test_file_changed_after_opening_is_reported(old: bytes, tmp_path: Path) -> None:
    blob = b"content"
    content = write_bundle(Bundle(HEADER, (said(0, f"hello {blob_hash(blob)}"),), {}, (blob,)))
    file = tmp_path / "a.jsonl"
    file.write_bytes(content)
    with FileContent(file) as opened:
        log = LogFile(opened)
        file.write_bytes(content.replace(old, old[::-1]))
        with pytest.raises(FormatError, match="changed"):
            list(log.stretches(0, S, 10))


def test_parent_in_the_same_write_is_referenced_by_index() -> None:
    assert as_new(said(5), 3, None).parent == Sibling(1)
    assert as_new(said(5), 5, "x").parent == "s/4"
    assert as_new(said(5), 5, "x").alias == "x"
    assert as_new(said(5, parent="t/4"), 3, None).parent == "t/4"
