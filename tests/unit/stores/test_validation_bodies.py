"""Bodies that every reader can decode are accepted; all others are rejected."""

from __future__ import annotations

import pytest

from perdure.errors import InvalidEntry
from perdure.session.codec import Unknown, encode
from perdure.session.entries import NewEntry
from perdure.session.kinds import OPAQUE, CustomMessage
from perdure.session.messages import TextPart, user
from perdure.session.notes import Label
from perdure.stores.validation import checked_body

INLINE = b'{"role":"user","parts":[{"type":"image","data":"data:image/png;base64,AAAA"}]}'


def test_entry_body_of_a_known_kind_is_decoded() -> None:
    said = user("Größe")
    assert checked_body(NewEntry("message", encode(said))) == said
    assert checked_body(NewEntry("label", encode(Label("x")), lane="side")) == Label("x")


@pytest.mark.parametrize(
    "new",
    [
        NewEntry("from_the_future", b"[1e5]", 7),
        NewEntry("label", b'{"name":1}', Label.version + 1, lane="side"),
    ],
)
def test_entry_body_of_an_unknown_kind_must_be_json(new: NewEntry) -> None:
    body = checked_body(new)
    assert body is None or isinstance(body, Unknown)


def test_opaque_entry_body_can_be_any_bytes() -> None:
    assert checked_body(NewEntry(OPAQUE, b"\xff{")) is None


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (NewEntry("from_the_future", b"{"), "not JSON"),
        (NewEntry("message", b'{"role":"user","parts":[],"x":"\xff"}'), "not JSON"),
        (NewEntry("message", b'{"parts":[]}'), "not that of a message"),
        (NewEntry("message", INLINE), "media"),
        (NewEntry("label", b"{}", 0, lane="side"), "version 0"),
    ],
)
def test_entry_body_that_cannot_be_decoded_is_rejected(new: NewEntry, why: str) -> None:
    with pytest.raises(InvalidEntry, match=why):
        checked_body(new)


def test_text_that_looks_like_media_stays_text() -> None:
    told = CustomMessage("x", (TextPart('{"type":"media","data":"base64"}'),))
    assert checked_body(NewEntry(CustomMessage.kind, encode(told))) == told
