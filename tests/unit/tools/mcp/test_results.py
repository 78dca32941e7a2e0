"""Results of MCP servers converted to tool outputs."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

from perdure.secrets.vault import Taint, Vault
from perdure.session.media.inline import InlineMedia
from perdure.tools.mcp.server_tools import MAX_PICTURES, output_of

PNG = b"\x89PNG\r\n\x1a\n" + b"p" * 20


def picture(content: bytes = PNG, kind: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "mimeType": kind, "data": base64.b64encode(content).decode()}


def test_texts_are_joined_and_pictures_become_media_with_a_marker() -> None:
    output = output_of([{"type": "text", "text": "a"}, picture()], None, is_error=False)
    assert output.text == "a\n[image image/png 28 bytes]"
    (kept,) = output.media
    assert isinstance(kept, InlineMedia)
    assert kept.content == PNG


def test_content_that_is_not_a_picture_is_replaced_by_a_marker() -> None:
    parts: list[Mapping[str, Any]] = [
        {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"},
        {"type": "image", "mimeType": "image/png", "data": "not base64!"},
        picture(kind="image/svg+xml"),
        picture(b"x" * 300_000),
        {"type": "resource_link", "name": "notes", "uri": "file:///notes"},
        {"type": "resource", "resource": {"uri": "a:b", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "a:c", "blob": "AAAA"}},
        {"type": "hologram"},
        {},
    ]
    output = output_of(parts, None, is_error=True)
    assert output.media == ()
    assert output.is_error
    assert output.text.splitlines() == [
        "[audio audio/wav 3 bytes]",
        "[image image/png 8 bytes]",
        "[image image/svg+xml 28 bytes]",
        "[image image/png 300000 bytes]",
        "[resource_link notes file:///notes]",
        "[resource a:b]",
        "inside",
        "[resource a:c 3 bytes]",
        "[hologram]",
        "[unknown]",
    ]


def test_structured_answer_without_text_is_json() -> None:
    assert output_of([], {"a": [1]}, is_error=False).text == '{"a":[1]}'
    assert output_of([{"type": "text", "text": "t"}], {"a": 1}, is_error=False).text == "t"
    assert output_of([], None, is_error=False).text == "done"


def test_mcp_result_has_limits_for_parts_pictures_and_text() -> None:
    many = output_of([picture()] * 300, None, is_error=False)
    assert len(many.media) == MAX_PICTURES
    assert many.text.endswith("[44 more parts were left out]")
    long = output_of([{"type": "text", "text": "x" * 9_000_000}], None, is_error=False)
    assert len(long.text) <= 4 * 1024 * 1024


def test_secret_at_the_cut_of_an_answer_is_scrubbed() -> None:
    taint = Taint(Vault(environment={}))
    taint.took("LOGIN", "swordfish")
    uri = "a:" + "x" * 194 + "swordfish"
    for part in (
        {"type": "resource_link", "name": "notes", "uri": uri},
        {"type": "resource", "resource": {"uri": uri, "text": "inside"}},
        {"type": "text", "text": "x" * 9 + "ab swordfish " * 400_000},
    ):
        output = output_of([part], None, is_error=False, scrub=taint.scrub)
        assert not re.search("sw|wo|rd|df|fi|sh", output.text)
