from __future__ import annotations

import msgspec
import pytest

from perdure.errors import CorruptLog, InvalidEntry, UnsupportedVersion
from perdure.session.codec import (
    BODIES,
    Unknown,
    body_of,
    encode,
    entry_of_line,
    line_of,
    new_side,
    new_tree,
    role_of,
)
from perdure.session.entries import LEAF, Entry, Lane, NewEntry, Sibling
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import Compaction, Custom, CustomMessage, TreeBody
from perdure.session.ledger import Interrupted
from perdure.session.messages import Message, TextPart, UnknownPart, tool_call, user
from perdure.session.notes import Label, SessionInfoChanged

LINE = (
    b'{"seq":3,"id":"s/3","lane":"tree","at":5,"kind":"custom","v":1,"parent_id":"s/1",'
    b'"body":{"custom_type":"x"}}'
)


def entry_with(kind: str, body: bytes, *, lane: Lane = "tree", v: int = 1) -> Entry:
    return Entry(StreamId("s"), 3, lane, None, None, 5, kind, v, body)


def test_every_entry_class_is_registered_under_its_kind() -> None:
    for kind, known in BODIES.items():
        assert known.kind == kind
        assert known.version >= 1
        assert known.lane == ("tree" if issubclass(known, TreeBody) else "side")


def test_new_tree_entry_has_the_expected_fields() -> None:
    assert new_tree(user("a")) == NewEntry(
        "message", encode(user("a")), 1, "tree", LEAF, None, None, None
    )
    new = new_tree(Custom("x"), Sibling(0), at=7, alias="abc")
    assert (new.kind, new.parent, new.at, new.alias) == ("custom", Sibling(0), 7, "abc")


def test_new_label_refers_to_the_given_entry() -> None:
    new = new_side(Label("x"), EntryId("s/1"), at=7)
    assert (new.kind, new.lane, new.about, new.at) == ("label", "side", "s/1", 7)


def test_unset_field_is_not_written() -> None:
    assert encode(SessionInfoChanged(title=None)) == b'{"title":null}'
    assert encode(SessionInfoChanged(cwd="x")) == b'{"cwd":"x"}'
    assert encode(Label()) == b"{}"


def test_null_in_data_is_not_mistaken_for_nan() -> None:
    content = encode(Custom("null", {"a": [None, 1.5], "null": "null"}))
    assert content == b'{"custom_type":"null","data":{"a":[null,1.5],"null":"null"}}'


def test_values_without_json_form_are_rejected() -> None:
    endless: list[object] = []
    endless.append(endless)
    for value in (object(), endless, {"a": {1.5j}}, 10**5000, "\ud800"):
        with pytest.raises(InvalidEntry, match="cannot be written as JSON"):
            encode(value)


def test_newer_version_of_a_known_kind_cannot_be_decoded() -> None:
    assert body_of(entry_with("hologram", b"[1]", v=4)) == Unknown("hologram", 4, b"[1]")
    assert body_of(entry_with("opaque", b"\xff")) == Unknown("opaque", 1, b"\xff")
    with pytest.raises(UnsupportedVersion):
        body_of(entry_with("label", b"{}", v=2))


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"text":1}', b'{"text":"\xff"}', b"[" * 10**5]
)
def test_error_for_a_damaged_entry_body_contains_the_entry_id(body: bytes) -> None:
    with pytest.raises(CorruptLog, match="s/3 is damaged"):
        body_of(entry_with("label", body))


def test_entry_with_unknown_parts_is_readable() -> None:
    part, message = b'{"type":"smell"}', b'{"role":"user","parts":[{"type":"smell"}]}'
    unknown = (UnknownPart(msgspec.Raw(part)),)
    body = b'{"custom_type":"x","parts":[' + part + b"]}"
    assert body_of(entry_with("custom_message", body)) == CustomMessage("x", unknown)
    body = b'{"summary":"x","retained":[' + message + b"]}"
    assert body_of(entry_with("compaction", body)) == Compaction(
        "x", retained=(Message("user", unknown),)
    )
    body = b'{"partial":' + message + b"}"
    assert body_of(entry_with("interrupted", body)) == Interrupted(Message("user", unknown))


def test_role_is_read_without_decoding_message() -> None:
    assert role_of(entry_with("message", encode(user("a")))) == "user"
    assert role_of(entry_with("message", b'{"role":"king","parts":7}')) == "king"
    assert role_of(entry_with("custom", b'{"role":"user"}')) == ""
    for damaged in (b"", b"[]", b'{"role":1}', b'{"role":"\xff"}', b"[" * 10**5):
        assert role_of(entry_with("message", damaged)) == ""


def test_line_contains_header_and_original_body() -> None:
    entry = Entry(
        StreamId("s"), 3, "tree", EntryId("s/1"), None, 5, "custom", 1, b'{"custom_type":"x"}'
    )
    assert line_of(entry) == LINE
    assert entry_of_line(LINE) == entry


def test_entry_body_unfit_for_a_json_line_becomes_base64() -> None:
    assert line_of(entry_with("opaque", b"{}")).endswith(b',"body_base64":"e30="}')
    assert line_of(entry_with("custom", b"{\n}")).endswith(b',"body_base64":"ewp9"}')


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[1]",
        LINE + b"}",
        LINE[:-1],
        LINE.replace(b'"seq":3', b'"seq":4'),
        LINE.replace(b'"s/3"', b'"s/03"'),
        LINE.replace(b'"s/3"', b'"s s/3"'),
        LINE.replace(b'"tree"', b'"side"'),
        LINE.replace(b'"tree"', b'"third"'),
        LINE.replace(b'"parent_id"', b'"about"'),
        LINE.replace(b'"v":1', b'"v":1,"new":1'),
        LINE.replace(b'"v":1', b'"v":1,"body_base64":"e30="'),
        LINE.replace(b'"body":', b'"body_base64":'),
        LINE.replace(b',"body":{"custom_type":"x"}', b""),
        LINE.replace(b'"x"', b"[" * 10**5),
    ],
)
def test_line_with_wrong_fields_is_rejected(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the reader's own message, whatever it says
        entry_of_line(line)


def test_stored_entry_body_is_never_reencoded() -> None:
    spaced = b'{ "role":"user", "parts":[{"type":"text","text":"a","new":1}], "x":1.50 }'
    entry = entry_with("message", spaced)
    assert body_of(entry) == Message("user", (TextPart("a"),))
    assert entry_of_line(line_of(entry)).body == spaced


def test_arguments_of_a_call_can_contain_any_json() -> None:
    args: dict[str, object] = {"n": None, "big": 10**30, "deep": [{"x": [1.5, "😀"]}]}
    message = Message("assistant", (tool_call("c", "t", args),))
    entry = entry_with("message", encode(message))
    assert entry.message == message
