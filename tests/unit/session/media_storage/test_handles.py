"""Inline media are replaced by handles without changing the argument."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import msgspec
import pytest

from perdure.errors import WrongArgument
from perdure.session.media.inline import HANDLE, MAX_PARTS, InlineMedia, media
from perdure.session.media_storage.handles import (
    inline_in,
    media_part,
    settled_data,
    settled_message,
)
from perdure.session.messages import (
    InFlightMessage,
    MediaPart,
    TextPart,
    ToolResultPart,
    UnknownPart,
    user,
)

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 8
PICTURE = media(PNG, name="a.png")


def unknown(value: object) -> UnknownPart:
    return UnknownPart(msgspec.Raw(msgspec.json.encode(value)))


def test_picture_is_replaced_by_handle_of_its_content() -> None:
    part = media_part(PICTURE)
    assert part.handle == "media://sha256-" + hashlib.sha256(PNG).hexdigest()
    assert HANDLE.fullmatch(part.handle)
    assert (part.mime_type, part.byte_length, part.name) == ("image/png", 16, "a.png")


def test_repeated_picture_in_a_message_is_stored_once() -> None:
    said = user("Look", PICTURE, "and", PICTURE)
    assert isinstance(said, InFlightMessage)
    message, contents = settled_message(said)
    assert message.role == "user"
    assert [type(part) for part in message.parts] == [TextPart, MediaPart, TextPart, MediaPart]
    assert contents == (PNG,)


def test_message_with_too_many_media_is_rejected() -> None:
    with pytest.raises(ValueError, match="at most 16 media, not 17"):
        settled_message(InFlightMessage("user", (PICTURE,) * (MAX_PARTS + 1)))
    large = InlineMedia("image/png", b"0" * (15 * 1024 * 1024))
    with pytest.raises(ValueError, match="at most 41943040 bytes"):
        settled_message(InFlightMessage("user", (large,) * 3))


def test_media_anywhere_in_data_become_handles_without_other_changes() -> None:
    data: dict[str, Any] = {"shots": [{"image": PICTURE}, (1, "x", None)], "kept": {"a": [1.5]}}
    settled = settled_data(data)
    value: Any = settled.value
    assert HANDLE.fullmatch(value["shots"][0]["image"]["handle"])
    assert value["kept"] is data["kept"]
    assert data["shots"][0] == {"image": PICTURE}
    assert settled.contents == (PNG,)
    plain = {"a": [1, {"b": "c"}]}
    assert settled_data(plain).value is plain


def test_error_for_invalid_data_does_not_quote_the_data() -> None:
    loop: list[object] = []
    loop.append({"again": loop})
    with pytest.raises(WrongArgument, match="holds itself"):
        settled_data(loop)
    shared = {"x": 1}
    assert settled_data([shared, shared]).contents == ()
    with pytest.raises(ValueError, match=r"^data\['a'\] is bytes"):
        settled_data({"a": b"secret"})
    with pytest.raises(ValueError, match="data: address") as caught:
        settled_data({"a": "data:image/png;base64,c2VjcmV0"})
    assert "c2VjcmV0" not in str(caught.value)


def test_error_for_data_that_is_not_json_contains_a_remedy() -> None:
    wrong: dict[str, object] = {"fine": 1, "when": {1, 2}}
    with pytest.raises(
        WrongArgument, match=r"^data\['when'\] is JSON, .* no set: give it as a list$"
    ):
        settled_data(wrong)
    with pytest.raises(WrongArgument, match=r"^foreign\['o'\]\[1\]\['p'\] is JSON, .* no object: "):
        settled_data({"o": [0, {"p": object()}]}, "foreign")


@pytest.mark.parametrize("depth", [1, 49, 50, 51, 200])
def test_nested_data_is_checked_at_every_depth(depth: int) -> None:
    def nested(value: object) -> object:
        for number in range(depth):
            value = {"a": value} if number % 2 else [1.5, None, True, value]
        return value

    plain = nested({"a": ("x", 2**63 - 1)})
    assert settled_data(plain).value is plain
    assert settled_data(nested(PICTURE)).contents == (PNG,)
    for wrong in (b"secret", "data:image/png;base64,c2VjcmV0", {7: "x"}, 2**64, {1, 2}):
        with pytest.raises(WrongArgument, match=r"^data.* (in a log|is JSON|is a number of)"):
            settled_data(nested(wrong))
    for absent in (math.nan, -math.inf, "\ud800", {"\ud800": 1}):
        with pytest.raises(WrongArgument, match=r"^data.* is JSON, which cannot hold"):
            settled_data(nested(absent))


@pytest.mark.parametrize(
    "part",
    [
        MediaPart("image/png", "data:image/png;base64,AAAA", 3),
        MediaPart("image/png", "media://sha256-short", 3),
        ToolResultPart("c", "x", media=(MediaPart("image/png", "https://x.example/a", 3),)),
        unknown({"type": "image", "source": {"type": "base64", "data": "AAAA"}}),
        unknown({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}),
        unknown({"type": "x", "deep": [[{"kind": "base64", "data": "AAAA"}]]}),
    ],
)
def test_parts_with_inline_bytes_are_detected(part: Any) -> None:
    assert inline_in([TextPart("a"), part]) is not None


def test_parts_without_inline_media_bytes_are_accepted() -> None:
    text = TextPart("data:image/png;base64,AAAA is only text")
    assert inline_in([text, media_part(PICTURE), unknown({"type": "x", "data": "AAAA"})]) is None
