from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import FormatError
from perdure.interop.formats.native import (
    VERSION,
    Bundle,
    blob_names,
    move_entry,
    parse,
    write_bundle,
)
from perdure.session.codec import BODIES, body_of, encode, entry_of_line, new_side, new_tree
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId, blob_hash, entry_id
from perdure.session.info import StreamHeader
from perdure.session.kinds import OPAQUE, Compaction
from perdure.session.messages import user
from perdure.session.notes import LeafMoved

S = StreamId("s")
HEADER = StreamHeader(S, 1_700_000_000_000, cwd="/x", title="T", metadata={"a": 1})
GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "v1" / "entries.jsonl"


def tree_entry(
    seq: int, body: bytes = b'{"role":"user","parts":[]}', kind: str = "message"
) -> Entry:
    parent = entry_id(S, seq - 1) if seq else None
    return Entry(S, seq, "tree", parent, None, seq, kind, 1, body)


def bundle_of(*entries: Entry, blobs: tuple[bytes, ...] = ()) -> Bundle:
    aliases = {f"x{entry.seq}": entry.id for entry in entries[:1]}
    return Bundle(HEADER, entries, aliases, blobs)


@given(st.lists(st.binary(max_size=20), max_size=5), st.lists(st.binary(max_size=20), unique=True))
def test_written_export_is_read_back_unchanged(bodies: list[bytes], blobs: list[bytes]) -> None:
    entries = [tree_entry(seq, body, OPAQUE) for seq, body in enumerate(bodies)]
    bundle = bundle_of(*entries, blobs=tuple(blobs))
    content = write_bundle(bundle)
    read = parse(content, "file")
    assert (read.header, read.entries, read.aliases) == (HEADER, tuple(entries), bundle.aliases)
    assert set(read.blobs) == set(blobs)
    assert write_bundle(read) == content


def test_every_entry_kind_is_exported_and_imported_unchanged() -> None:
    entries = [entry_of_line(line) for line in GOLDEN.read_bytes().splitlines()]
    stream = entries[0].stream
    own = tuple(entry for entry in entries if entry.stream == stream)
    own = tuple(msgspec.structs.replace(entry, seq=seq) for seq, entry in enumerate(own))
    bundle = Bundle(StreamHeader(stream, 0), own, {}, ())
    assert parse(write_bundle(bundle), "golden").entries == own


def test_exported_file_has_a_header_line_and_an_end_line() -> None:
    lines = write_bundle(bundle_of(tree_entry(0))).split(b"\n")
    assert lines[0].startswith(b'{"type":"perdure","version":1,"stream":{"id":"s",')
    assert lines[-2] == b'{"type":"end","entries":1,"blobs":0}'
    assert lines[-1] == b""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (b'{"type":"perdure"', b'{"type":"purdure"', "no header"),
        (b'"version":1', b'"version":2', "version 2"),
        (b'{"type":"end","entries":2,"blobs":1}\n', b"", "cut off"),
        (b'"entries":2', b'"entries":3', "line 6"),
        (b'"seq":1', b'"seq":7', "line 3"),
        (b'"id":"s/0"', b'"id":"t/0"', "line 2"),
        (b'"base64":"', b'"base64":"AAAA', "line 5"),
        (b'{"type":"aliases"', b'{"type":"novelty"', "line 4"),
        (b'{"seq":1', b'\xff{"seq":1', "line 3"),
        (b'"at":1', b'"at":99999999999999999999', "line 3"),
        (b'"parts":[]', b'"parts":7', "line 2"),
        (b'"metadata":{"a":1}', b'"metadata":{"a":' + b"[" * 9_000 + b"]" * 9_000 + b"}", "header"),
        (b'"created_at":1', b'"created_at":9999999', "first line"),
        (b'"cwd":"/x"', b'"fork":{"stream":"o","head":0,"leaf":null,"scope":"tree"}', "no fork"),
    ],
)
def test_damaged_file_is_rejected_with_its_line(old: bytes, new: bytes, told: str) -> None:
    content = write_bundle(bundle_of(tree_entry(0), tree_entry(1), blobs=(b"blob",)))
    assert old in content
    with pytest.raises(FormatError, match=told) as error:
        parse(content.replace(old, new), "file.jsonl")
    assert error.value.source == "file.jsonl"


@given(st.data())
def test_truncated_file_is_never_accepted_as_complete(data: st.DataObject) -> None:
    content = write_bundle(bundle_of(tree_entry(0), tree_entry(1), blobs=(b"blob",)))
    cut = content[: data.draw(st.integers(0, len(content) - 2))]
    with pytest.raises(FormatError):
        parse(cut, "file")


def test_native_export_is_written_in_version_1() -> None:
    assert VERSION == 1


def test_blob_names_are_found_anywhere_in_an_entry_body() -> None:
    one, two = blob_hash(b"1"), blob_hash(b"2")
    first = tree_entry(0, encode(user(f"media://{one} and {two}")))
    assert blob_names([first, tree_entry(1, encode(user(one)))]) == [one, two]


def renamed(bundle: Bundle, stream: StreamId) -> tuple[Entry, ...]:
    ids = {entry.id: entry_id(stream, entry.seq) for entry in bundle.entries}
    return tuple(move_entry(entry, stream, entry.seq, ids) for entry in bundle.entries)


def test_entries_can_get_other_ids_and_all_references_are_updated() -> None:
    compaction = new_tree(Compaction("sum", EntryId("s/0")))
    leaf = new_side(LeafMoved(EntryId("s/1")))
    bundle = bundle_of(
        tree_entry(0),
        tree_entry(1, compaction.body, Compaction.kind),
        Entry(S, 2, "side", None, EntryId("s/1"), 0, leaf.kind, 1, leaf.body),
    )
    other = renamed(bundle, StreamId("other"))
    assert [entry.id for entry in other] == ["other/0", "other/1", "other/2"]
    assert other[1].parent_id == "other/0"
    assert other[2].about == "other/1"
    assert body_of(other[1]) == Compaction("sum", EntryId("other/0"))
    assert body_of(other[2]) == LeafMoved(EntryId("other/1"))
    assert renamed(msgspec.structs.replace(bundle, entries=other), S) == bundle.entries


def test_text_that_resembles_an_id_is_not_a_reference() -> None:
    body = encode(user("s/0"))
    other = renamed(bundle_of(tree_entry(0, body)), StreamId("other"))
    assert other[0].body == body


def test_references_to_other_sessions_and_unknown_fields_are_unchanged() -> None:
    body = b'{"summary":"x","first_kept":"elsewhere/4","new_field":1.50}'
    other = renamed(bundle_of(tree_entry(0, body, "compaction")), StreamId("other"))
    assert other[0].body == body


def test_every_entry_id_in_a_body_is_renamed() -> None:
    for kind, body in BODIES.items():
        names = [f.encode_name for f in msgspec.structs.fields(body) if "EntryId" in str(f.type)]
        for name in names:
            entry = tree_entry(0, encode({name: "s/0", "x": 1}), kind)
            read = msgspec.json.decode(renamed(bundle_of(entry), StreamId("o"))[0].body)
            assert read == {name: "o/0", "x": 1}, kind
