from __future__ import annotations

import pytest

from perdure.session.media.inline import MAX_PART_BYTES, InlineMedia, media

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 8


@pytest.mark.parametrize(
    ("content", "mime_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"%PDF-1.7", "application/pdf"),
        (b"RIFF0000WEBP", "image/webp"),
    ],
)
def test_media_type_is_detected_from_first_bytes(content: bytes, mime_type: str) -> None:
    assert media(content).mime_type == mime_type
    assert media(memoryview(content), "image/x-mine", "a").mime_type == "image/x-mine"


@pytest.mark.parametrize(
    ("content", "mime_type", "name", "reason"),
    [
        (b"hello", None, None, "say which with mime_type="),
        (PNG, "application/zip", None, "not 'application/zip'"),
        (PNG, "nonsense", None, "media are images"),
        (b"0" * (MAX_PART_BYTES + 1), "image/png", None, "too large"),
        (PNG, None, "n" * 256, "at most 255 characters"),
    ],
)
def test_unsupported_media_is_rejected(
    content: bytes, mime_type: str | None, name: str | None, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        media(content, mime_type, name)


def test_media_bytes_are_never_shown_in_repr() -> None:
    assert repr(InlineMedia("image/png", PNG)) == "InlineMedia('image/png', 16 bytes)"
