from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from perdure.codecs.shared_keys import meta_of
from perdure.interop.formats.items import (
    Item,
    ItemBody,
    body_without_source,
    with_source,
    without_source,
)
from perdure.session.codec import encode
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import OPAQUE, Compaction, Custom
from perdure.session.messages import decode_message, user
from perdure.session.notes import CompactionUndone, SourcePlace, source_of

S = StreamId("s")


def item(body: ItemBody, number: int = 1, **more: object) -> Item:
    return msgspec.structs.replace(Item(body, number, number * 10, 5), **more)


def test_references_in_an_imported_body_become_entry_ids() -> None:
    compaction = item(Compaction("sum"), parent=0, references={"first_kept": 0})
    body = body_without_source(compaction, (EntryId("s/10"),))
    assert msgspec.json.decode(body)["first_kept"] == "s/10"


def test_entry_body_that_is_not_json_is_unchanged() -> None:
    opaque = item(b"\xff no json", 4)
    assert (opaque.kind, body_without_source(opaque, ())) == (OPAQUE, b"\xff no json")


@given(st.dictionaries(st.text(), st.text() | st.integers()), st.integers(0, 2**40))
def test_source_position_can_be_added_and_removed(data: dict[str, str | int], offset: int) -> None:
    body, source = encode(Custom("t", {"source": data})), SourcePlace(1, offset, 2)
    sourced = with_source(body, source)
    assert source_of(sourced) == source
    assert without_source(sourced) == body
    assert without_source(body) == body


def test_source_position_can_be_added_to_an_empty_body() -> None:
    body = encode(CompactionUndone())
    assert without_source(with_source(body, SourcePlace(1, 2, 3))) == body == b"{}"


def test_invalid_position_in_the_source_file_is_read_as_none() -> None:
    assert source_of(b'{"source":3}') is None
    assert source_of(b'"source": \xff') is None


def test_source_metadata_and_position_are_stored_separately() -> None:
    told = {"reactions": ["👍"]}
    body = body_without_source(item(user("a"), meta=told), ())
    sourced = with_source(body, SourcePlace(0, 10, 5))
    assert meta_of(sourced) == told
    assert source_of(sourced) == SourcePlace(0, 10, 5)
    assert decode_message(sourced) == user("a")
    assert without_source(sourced) == body


def test_invalid_source_metadata_is_read_as_empty() -> None:
    assert meta_of(b'{"meta":3}') == {}
    assert meta_of(encode(user("a"))) == {}
    assert meta_of(b'"meta": \xff') == {}
