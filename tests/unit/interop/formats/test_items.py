from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from perdure.codecs.shared_keys import meta_of
from perdure.interop.formats.items import (
    Item,
    ItemBody,
    bind_items,
    body_without_source,
    source_of,
    with_source,
    without_source,
)
from perdure.session.codec import encode
from perdure.session.entries import Sibling
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import OPAQUE, Compaction, Custom
from perdure.session.messages import decode_message, user
from perdure.session.notes import CompactionUndone, Label, SourcePlace

S = StreamId("s")


def item(body: ItemBody, number: int = 1, **more: object) -> Item:
    return msgspec.structs.replace(Item(body, number, number * 10, 5), **more)


def test_items_become_entries_that_refer_to_siblings() -> None:
    items = [
        item(user("a"), at=7, alias="x"),
        item(user("b"), parent=0),
        item(Label("name"), about=1),
    ]
    first, second, label = bind_items(items, S, 0).entries
    assert (first.parent, first.at, first.alias) == (None, 7, "x")
    assert second.parent == Sibling(1)
    assert (label.lane, label.about, label.parent) == ("side", Sibling(2), None)


def test_known_items_are_referenced_without_new_entry() -> None:
    items = [item(user("a")), item(user("b"), parent=0)]
    made = bind_items(items, S, 40, {0: EntryId("s/7")})
    assert made.ids == ("s/7", "s/41")
    [entry] = made.entries
    assert entry.parent == "s/7"


def test_references_in_body_become_entry_ids() -> None:
    items = [
        item(user("a")),
        item(Compaction("sum"), parent=0, references={"first_kept": 0}),
    ]
    compaction = bind_items(items, S, 9).entries[1]
    assert msgspec.json.decode(compaction.body)["first_kept"] == "s/10"


def test_every_body_except_opaque_has_source_place() -> None:
    items = [item(user("a"), 3), item(b"\xff no json", 4)]
    read, opaque = bind_items(items, S, 5).entries
    assert source_of(read.body) == SourcePlace(5, 30, 5)
    assert (opaque.kind, opaque.body) == (OPAQUE, b"\xff no json")


@given(st.dictionaries(st.text(), st.text() | st.integers()), st.integers(0, 2**40))
def test_source_place_can_be_added_and_removed(data: dict[str, str | int], offset: int) -> None:
    body, source = encode(Custom("t", {"source": data})), SourcePlace(1, offset, 2)
    sourced = with_source(body, source)
    assert source_of(sourced) == source
    assert without_source(sourced) == body
    assert without_source(body) == body


def test_empty_body_takes_a_source_too() -> None:
    body = encode(CompactionUndone())
    assert without_source(with_source(body, SourcePlace(1, 2, 3))) == body == b"{}"


def test_invalid_source_place_is_none() -> None:
    assert source_of(b'{"source":3}') is None
    assert source_of(b'"source": \xff') is None


def test_source_metadata_of_message_is_separate_field() -> None:
    told = {"reactions": ["👍"]}
    [entry] = bind_items([item(user("a"), meta=told)], S, 0).entries
    assert meta_of(entry.body) == told
    assert source_of(entry.body) == SourcePlace(0, 10, 5)
    assert decode_message(entry.body) == user("a")
    assert body_without_source(item(user("a"), meta=told), ()) == without_source(entry.body)


def test_invalid_metadata_is_empty() -> None:
    assert meta_of(b'{"meta":3}') == {}
    assert meta_of(encode(user("a"))) == {}
    assert meta_of(b'"meta": \xff') == {}
