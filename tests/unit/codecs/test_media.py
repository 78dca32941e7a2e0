from __future__ import annotations

from base64 import b64encode

import msgspec
import pytest

from perdure.codecs.media import Media, unknown_part
from perdure.session.ids import blob_hash
from perdure.session.media.inline import SCHEME
from perdure.session.media_storage.handles import inline_in


def test_media_are_identified_by_hash_and_stored_once() -> None:
    media = Media()
    data = b64encode(b"picture").decode()
    first, second = media.part(data, "image/png"), media.part(data, "image/png")
    assert first == second
    assert first is not None
    assert first.handle == SCHEME + blob_hash(b"picture")
    assert first.byte_length == len(b"picture")
    assert media.blobs == (b"picture",)


@pytest.mark.parametrize("data", [None, "no base64!", "YQ", "ä"])
def test_invalid_base64_is_not_media(data: str | None) -> None:
    media = Media()
    assert media.part(data, "image/png") is None
    assert media.blobs == ()


def test_media_without_a_type_get_the_general_binary_type() -> None:
    part = Media().part("YQ==", None)
    assert part is not None
    assert part.mime_type == "application/octet-stream"


@pytest.mark.parametrize(
    ("beginning", "name"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"RIFF0000WEBP", "image/webp"),
        (b"RIFF0000WAVE", "audio/wav"),
        (b"RIFF0000AVI ", "application/octet-stream"),
    ],
)
def test_missing_media_type_is_detected_from_the_content(beginning: bytes, name: str) -> None:
    part = Media().part(b64encode(beginning).decode(), None)
    assert part is not None
    assert part.mime_type == name


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("data:image/png;base64,YQ==", "image/png"),
        ("data:text/plain;charset=utf-8;base64,YQ==", "text/plain"),
        ("data:;base64,YQ==", "application/octet-stream"),
        ("YQ==", "application/octet-stream"),
    ],
)
def test_data_address_contains_its_content(address: str, name: str) -> None:
    media = Media()
    part = media.from_address(address)
    assert part is not None
    assert (part.mime_type, media.blobs) == (name, (b"a",))


@pytest.mark.parametrize("address", [None, "", "https://example.org/a.png", "file:/tmp/a.png"])
def test_remote_address_is_not_read_as_media(address: str | None) -> None:
    media = Media()
    assert media.from_address(address) is None
    assert media.blobs == ()


def test_unknown_part_keeps_all_fields_except_signatures() -> None:
    part = unknown_part({"type": "new", "thoughtSignature": "s", "signature": "s", "text": "t"})
    assert msgspec.json.decode(part.raw) == {"type": "new", "text": "t"}
    assert msgspec.json.decode(unknown_part([1]).raw) == [1]


DATA_ADDRESS = "data:image/png;base64,"


@pytest.mark.parametrize(
    "item",
    [
        {"type": "text", "content": DATA_ADDRESS},
        {"type": "x", "source": {"type": "base64", "data": "!"}},
        {"type": "x", "deep": [{"kind": "base64", "data": "AAAA"}, {"y": "DATA:;base64,AA"}]},
        [DATA_ADDRESS + "AA\nBB", "words"],
    ],
)
def test_unknown_part_never_contains_media_bytes(
    item: object,
) -> None:
    part = unknown_part(item)
    assert inline_in((part,)) is None
    assert b"AA" not in bytes(part.raw)


def test_unknown_part_is_kept_without_its_media_bytes() -> None:
    part = unknown_part({"type": "x", "name": "n", "of": {"type": "base64", "data": "A", "n": 1}})
    kept = msgspec.json.decode(bytes(part.raw))
    assert kept == {"type": "x", "name": "n", "of": {"type": "base64", "data": None, "n": 1}}
