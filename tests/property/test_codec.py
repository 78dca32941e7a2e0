from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.errors import CorruptLog, InvalidEntry
from perdure.session.codec import Body, Unknown, body_of, encode, entry_of_line, line_of
from perdure.session.entries import Entry, Lane
from perdure.session.ids import EntryId, StreamId, entry_id
from perdure.session.kinds import OPAQUE
from perdure.session.messages import MESSAGE, Message, TextPart
from tests.fakes.bodies import bodies, json_values, messages, texts

STREAM = StreamId("s")


def entry_with(kind: str, body: bytes, lane: Lane = "tree", v: int = 1) -> Entry:
    return Entry(STREAM, 7, lane, None, None, 1_700_000_000_000, kind, v, body)


def kind_of(body: Body) -> str:
    return MESSAGE if isinstance(body, Message) else body.kind


def passes_unchanged(entry: Entry) -> bool:
    line = line_of(entry)
    return b"\n" not in line and entry_of_line(line) == entry


@given(bodies)
def test_every_entry_body_is_decoded_to_the_value_that_was_encoded(body: Body) -> None:
    content = encode(body)
    entry = entry_with(kind_of(body), content)
    read = body_of(entry)
    assert read == body
    assert type(read) is type(body)
    assert encode(read) == content
    assert passes_unchanged(entry)


@given(messages)
def test_message_is_read_from_its_entry(message: Message) -> None:
    entry = entry_with(MESSAGE, encode(message))
    assert entry.message == message


@given(bodies, st.dictionaries(texts, json_values, max_size=3))
def test_unknown_fields_are_preserved_and_do_not_change_known_fields(
    body: Body, more: dict[str, Any]
) -> None:
    fields: dict[str, Any] = msgspec.json.decode(encode(body))
    known = set(fields) | set(type(body).__struct_fields__)
    added = {f"{name}_x": value for name, value in more.items() if f"{name}_x" not in known}
    entry = entry_with(kind_of(body), encode({**added, **fields}))
    assert body_of(entry) == body
    assert passes_unchanged(entry)


@given(texts.map(lambda text: f"future_{text}"), json_values, st.integers(min_value=1))
def test_unknown_kind_is_preserved_byte_for_byte(kind: str, value: object, version: int) -> None:
    content = encode(value)
    entry = entry_with(kind, content, v=version)
    assert body_of(entry) == Unknown(kind, version, content)
    assert passes_unchanged(entry)


@given(st.binary(max_size=60), st.sampled_from([OPAQUE, "custom", MESSAGE, "future"]))
@example(b"", "future")
@example(b" {}", "future")
@example(b"{}\r", "future")
@example(b'{\n"a":1}', "future")
@example(b'{"a":1},"seq":9', "future")
@example(b'{"a":1}}', "future")
@example(b'"\xff"', "future")
@example(b'"\xed\xa0\x80"', "future")
@example(b'"\\ud800"', "future")
@example(b'{"a":1e400}', "future")
@example(b"NaN", "future")
@example(b"\xef\xbb\xbf{}", "future")
@example('{"a":"\u2028\u0085"}'.encode(), "future")
@example(b'{"a":1,"a":2}', "future")
@example(b'{ "a" :\t1.50 }', "future")
@example(b"null", "future")
@example(b"[" * 100_000, "future")
@example(b"[" * 100_000, OPAQUE)
def test_any_body_is_unchanged_after_it_was_written_to_a_line(content: bytes, kind: str) -> None:
    entry = entry_with(kind, content)
    assert passes_unchanged(entry)
    assert json.loads(line_of(entry))["id"] == "s/7"  # another reader of JSON agrees


@given(st.binary(max_size=60), st.sampled_from([MESSAGE, "custom_message", "label"]))
@example(b"[" * 100_000, MESSAGE)
@example(b'{"parts":' + b"[" * 100_000, "custom_message")
@example(b'{"role":"user","parts":[{"type":"future","x":' + b"[" * 100_000, MESSAGE)
@example(b'{"role":"user","parts":"no"}', MESSAGE)
@example(b'{"role":"user","parts":[1]}', MESSAGE)
@example(b'{"role":"nobody","parts":[]}', MESSAGE)
@example(b'{"text":"\xff"}', "label")
def test_damaged_entry_body_raises_only_the_error_corrupt_log(content: bytes, kind: str) -> None:
    with suppress(CorruptLog):
        body_of(entry_with(kind, content))


@given(
    st.sampled_from(["tree", "side"]),
    st.none() | st.integers(min_value=0),
    st.integers(min_value=0, max_value=2**63),
    st.integers(),
    texts,
)
def test_header_is_read_back_from_its_line(
    lane: Lane, other: int | None, seq: int, at: int, kind: str
) -> None:
    place: EntryId | None = None if other is None else entry_id("origin", other)
    parent, about = (place, None) if lane == "tree" else (None, place)
    entry = Entry(STREAM, seq, lane, parent, about, at, kind, 3, b"{}")
    assert passes_unchanged(entry)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, float("1e400")])
@given(wrapped=st.sampled_from(["plain", "list", "dict", "deep", "field"]))
def test_non_json_number_is_rejected(value: float, wrapped: str) -> None:
    values: dict[str, object] = {
        "plain": value,
        "list": [1, [None, value]],
        "dict": {"a": {"b": value}},
        "deep": [{"a": (1, {"b": [value]})}],
        "field": {"null": None, "x": value},
    }
    with pytest.raises(InvalidEntry, match="NaN or an infinity"):
        encode(values[wrapped])


@given(st.text(max_size=5), st.characters(categories=("Cs",)), st.text(max_size=5))
def test_lone_surrogate_is_rejected(before: str, surrogate: str, after: str) -> None:
    text = before + surrogate + after
    for value in (text, {text: 1}, Message("user", (TextPart(text),))):
        with pytest.raises(InvalidEntry):
            encode(value)
