from __future__ import annotations

import pytest

from perdure.errors import CorruptLog, UnsupportedVersion
from perdure.session.entries import LEAF, Entry, NewEntry
from perdure.session.ids import StreamId
from perdure.session.messages import user


def entry_with(body: bytes, *, kind: str = "message", v: int = 1) -> Entry:
    return Entry(StreamId("s"), 3, "tree", None, None, 0, kind, v, body)


def test_entry_id_is_stream_and_seq() -> None:
    assert entry_with(b"").id == "s/3"


def test_only_message_entries_have_a_message() -> None:
    assert entry_with(b'{"role":"user","parts":[{"type":"text","text":"a"}]}').message == user("a")
    assert entry_with(b'{"model":"x:y"}', kind="model_change").message is None
    assert entry_with(b"not JSON", kind="opaque").message is None


def test_only_message_entries_have_a_text() -> None:
    assert entry_with(b'{"role":"user","parts":[{"type":"text","text":"a"}]}').text == "a"
    assert entry_with(b'{"model":"x:y"}', kind="model_change").text == ""


def test_error_for_an_unreadable_message_contains_the_entry_id() -> None:
    for body in (b"not JSON", b"{}", b"[" * 100_000, b'"\xff"'):
        with pytest.raises(CorruptLog) as caught:
            entry_with(body).message  # noqa: B018 - reading it is what fails
        assert (caught.value.stream, caught.value.seq) == ("s", 3)
    with pytest.raises(UnsupportedVersion):
        entry_with(b"{}", v=2).message  # noqa: B018 - reading it is what fails


def test_new_entry_has_the_leaf_as_parent_by_default() -> None:
    new = NewEntry("custom", b"{}")
    assert (new.lane, new.parent, new.about, new.at) == ("tree", LEAF, None, None)
