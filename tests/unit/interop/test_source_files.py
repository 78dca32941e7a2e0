from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.interop.aliases import known_items
from perdure.interop.formats.items import Item, with_source
from perdure.interop.formats.sources.content import Held
from perdure.interop.source_files import FileRelation, Original, originals_of, relation_of
from perdure.session.codec import encode, new_side
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId, blob_hash
from perdure.session.kinds import OPAQUE
from perdure.session.messages import MESSAGE, Message, user
from perdure.session.notes import ImportSource, SourcePlace

S = StreamId("s")


def part(seq: int, content: bytes, offset: int) -> Entry:
    source = ImportSource("pi", "f", blob_hash(content), offset, len(content), 1, 1)
    new = new_side(source)
    return Entry(S, seq, "side", None, None, 0, new.kind, 1, new.body)


def original_of(*contents: bytes) -> Original:
    offset, parts = 0, list[Entry]()
    for seq, content in enumerate(contents):
        parts.append(part(seq, content, offset))
        offset += len(content)
    [original] = originals_of(parts)
    return original


def entry(seq: int, message: Message, source: SourcePlace | None, at: int = 0) -> Entry:
    body = encode(message)
    body = body if source is None else with_source(body, source)
    return Entry(S, seq, "tree", None, None, at, MESSAGE, 1, body)


def item(text: str, offset: int, alias: str | None = None, at: int = 0) -> Item:
    return Item(user(text), 1, offset, 1, alias=alias, at=at)


def test_import_from_offset_zero_begins_a_new_file_version() -> None:
    notes = [part(0, b"abc", 0), part(5, b"de", 3), part(9, b"xyz", 0)]
    first, second = originals_of(notes)
    assert (first.byte_length, first.seqs) == (5, {0, 5})
    assert (second.byte_length, second.seqs) == (3, {9})


@given(st.lists(st.binary(min_size=1, max_size=5), min_size=1, max_size=4), st.binary(max_size=5))
def test_file_is_compared_with_original_by_hashes(contents: list[bytes], more: bytes) -> None:
    original, whole = original_of(*contents), b"".join(contents)
    assert relation_of(Held(whole), original) is FileRelation.SAME
    assert relation_of(Held(whole[:-1]), original) is FileRelation.OLDER
    if more:
        assert relation_of(Held(whole + more), original) is FileRelation.GROWN
    changed = bytes([whole[0] ^ 1]) + whole[1:]
    assert relation_of(Held(changed + more), original) is FileRelation.OTHER


def test_entries_of_the_same_file_version_are_matched_by_position() -> None:
    entries = [entry(1, user("a"), SourcePlace(0, 0, 1)), entry(2, user("b"), SourcePlace(0, 5, 1))]
    items = [item("changed", 0), item("b", 5), item("new", 9)]
    assert known_items(items, entries, {}, {0}) == {0: "s/1", 1: "s/2"}


def test_several_entries_from_one_source_line_are_matched_in_order() -> None:
    entries = [entry(1, user("a"), SourcePlace(0, 0, 1)), entry(2, user("b"), SourcePlace(0, 0, 1))]
    items = [item("a", 0), msgspec.structs.replace(item("b", 0), ordinal=1)]
    assert known_items(items, entries, {}, {0}) == {0: "s/1", 1: "s/2"}


def test_entry_of_another_file_version_is_not_matched_by_position() -> None:
    entries = [entry(1, user("a"), SourcePlace(0, 0, 1), at=5)]
    assert known_items([item("z", 0, at=5)], entries, {}, {7}) == {}
    assert known_items([item("z", 0, at=5)], entries, {}, ()) == {}


def test_repeated_line_in_file_that_grew_is_a_new_entry() -> None:
    entries = [entry(1, user("a"), SourcePlace(0, 0, 1))]
    items = [item("a", 0, "x"), item("a", 5, "x")]
    assert known_items(items, entries, {"x": EntryId("s/1")}, {0}) == {0: "s/1"}


def test_entries_of_unreadable_lines_are_matched_by_bytes() -> None:
    entries = [Entry(S, seq, "tree", None, None, 0, OPAQUE, 1, b"\xff") for seq in (1, 2)]
    items = [Item(b"\xff", 1, offset, 1, alias="x") for offset in (0, 5, 9)]
    assert known_items(items, entries, {"x": EntryId("s/2")}, {0}) == {0: "s/1", 1: "s/2"}


def test_readable_line_does_not_match_a_stored_unreadable_entry() -> None:
    entries = [Entry(S, 1, "tree", None, None, 0, OPAQUE, 1, b"\xff")]
    assert known_items([item("whole", 0, "x")], entries, {"x": EntryId("s/1")}, {0}) == {}


def test_entries_created_in_perdure_are_matched_by_id() -> None:
    own = entry(2, user("ours"), None)
    assert known_items([item("ours", 0, "y")], [own], {"y": own.id}, {0}) == {0: "s/2"}


def test_rewritten_file_is_matched_by_ids_then_content() -> None:
    entries = [
        entry(1, user("a"), SourcePlace(0, 0, 1), at=1),
        entry(2, user("same"), SourcePlace(0, 5, 1), at=2),
        entry(3, user("same"), SourcePlace(0, 9, 1), at=2),
    ]
    items = [
        item("rewritten", 0, "x"),
        item("same", 20, "new id", at=2),
        item("same", 30, at=2),
        item("same", 40, at=2),
    ]
    ids = {"x": EntryId("s/1")}
    assert known_items(items, entries, ids, ()) == {0: "s/1", 1: "s/2", 2: "s/3"}


def test_messages_written_in_perdure_are_never_matched_by_content() -> None:
    own = entry(1, user("a"), None, at=1)
    assert known_items([item("a", 0, at=1)], [own], {}, ()) == {}


@pytest.mark.parametrize("noise", [b"", b"{}"])
def test_leaf_entry_added_by_an_import_matches_no_line(noise: bytes) -> None:
    moved = Entry(S, 3, "side", None, None, 0, "leaf", 1, with_source(b"{}", SourcePlace(0, 5, 0)))
    assert known_items([item(noise.decode(), 5)], [moved], {}, {0}) == {}
