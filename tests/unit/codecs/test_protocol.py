"""Common parts of both codecs: embedded bodies, and records of unknown types."""

from __future__ import annotations

import msgspec
import pytest

from perdure.codecs.media import Media
from perdure.codecs.operator.codec import OPERATOR
from perdure.codecs.pi.codec import PI
from perdure.codecs.protocol import (
    Codec,
    carried_body,
    carried_fields,
    custom_body,
    reference,
    stands_as_json,
    unknown_record,
    unreadable_message,
)
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import Custom
from perdure.session.notes import ImportedRecord, SessionInfoChanged


def entry_with(body: bytes, kind: str = "future") -> Entry:
    return Entry(StreamId("s"), 1, "side", None, EntryId("s/0"), 5, kind, 1, body)


@pytest.mark.parametrize("codec", [OPERATOR, PI])
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("future", b'{"a": 1.50}'),
        ("future", '{"a":"\u2028"}'.encode()),
        ("opaque", b"\xff\n"),
        ("opaque", b'{"a":1}'),
        ("future", b""),
    ],
)
def test_entry_body_embedded_in_a_record_is_read_back_byte_for_byte(
    codec: Codec, kind: str, body: bytes
) -> None:
    data = carried_fields(entry_with(body, kind), is_escaped=codec.is_escaped)
    line = codec.line(codec.placed(codec.custom(f"perdure.{kind}", data), "1", None, 5))
    assert b"\n" not in line
    assert carried_body(line) == body
    assert (data["lane"], data["about"]) == ("side", "s/0")


def test_entry_body_that_contains_a_line_end_is_not_embedded_as_json() -> None:
    body = '{"a":"\u2028"}'.encode()
    assert stands_as_json(body, is_escaped=False)
    assert not stands_as_json(body, is_escaped=True)
    assert not stands_as_json(b'{"a":\n1}', is_escaped=False)
    assert not stands_as_json(b" {}", is_escaped=False)


def test_damaged_entry_body_embedded_in_a_record_is_ignored() -> None:
    assert carried_body(b'{"data":{"base64":"?"}}') == b""
    assert carried_body(b'{"data":3}') == b""


def test_unknown_perdure_record_with_lane_tree_becomes_custom_entry() -> None:
    assert custom_body("pi", "todo", [1]) == Custom("todo", [1])
    beside = ImportedRecord("pi", "perdure.turn_started")
    assert custom_body("pi", "perdure.turn_started", {"lane": "side"}) == beside
    assert custom_body("pi", "perdure.turn_started", None) == beside
    in_tree = {"lane": "tree", "body": 1}
    assert custom_body("pi", "perdure.future", in_tree) == Custom("perdure.future", in_tree)


def test_unknown_record_keeps_all_fields_except_its_envelope() -> None:
    said = unknown_record("pi", {"type": "new", "id": "1", "x": 2}, ("type", "id"))
    assert said.body == Custom("pi:new", {"x": 2})
    assert said.unknown == "'new' is stored without effect"


def test_message_without_role_is_malformed() -> None:
    assert unreadable_message("pi", {}, None, is_known=False).malformed is not None
    assert unreadable_message("pi", {}, "user", is_known=True).malformed is not None
    said = unreadable_message("pi", {"role": "x"}, "x", is_known=False)
    assert (said.malformed, said.body) == (None, Custom("pi:message", {"role": "x"}))


def test_empty_reference_is_omitted() -> None:
    assert reference("from_id", {"fromId": "a"}, "fromId") == (("from_id", "a"),)
    assert reference("from_id", {"fromId": ""}, "fromId") == ()


def test_each_codec_reads_the_title_it_wrote() -> None:
    for codec in (OPERATOR, PI):
        said = codec.said(msgspec.json.decode(codec.line(codec.title("Tide"))), Media())
        assert said.body == SessionInfoChanged(title="Tide")
