"""Convert a server's answer to a tool output: bounded text, pictures, and markers.

Pure. Anything but text and supported pictures is described by its kind and size.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from perdure.session.media.inline import InlineMedia, media
from perdure.tools.execution import shorten_text
from perdure.tools.spec import ToolOutput

MAX_TEXT_BYTES = 4 * 1024 * 1024
MAX_PARTS = 256
MAX_PICTURES = 16
MAX_PICTURE_BYTES = 256 * 1024
PICTURES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))

Content = Mapping[str, Any]


def output_of(content: list[Content], structured: object, *, is_error: bool) -> ToolOutput:
    """Return the output for the parts `content` of an answer and its `structured` value, if any."""
    texts: list[str] = []
    pictures: list[InlineMedia] = []
    for part in content[:MAX_PARTS]:
        picture = _picture(part) if len(pictures) < MAX_PICTURES else None
        if picture is not None:
            pictures.append(picture)
        texts.append(_part_text(part))
    if len(content) > MAX_PARTS:
        texts.append(f"[{len(content) - MAX_PARTS} more parts were left out]")
    if structured is not None and not any(part.get("type") == "text" for part in content):
        texts.append(msgspec.json.encode(structured).decode())
    text = shorten_text("\n".join(texts), MAX_TEXT_BYTES)
    return ToolOutput(text or "done", is_error=is_error, media=tuple(pictures))


def _part_text(part: Content) -> str:
    kind = str(part.get("type", "unknown"))
    if kind == "text":
        return str(part.get("text", ""))
    if kind == "resource":
        return _resource(part.get("resource"))
    return f"[{' '.join((kind, *_facts(part)))}]"


def _resource(given: object) -> str:
    resource: Content = cast("Content", given) if isinstance(given, Mapping) else {}
    marker = f"[{' '.join(('resource', *_facts(resource)))}]"
    text = resource.get("text")
    return f"{marker}\n{text}" if isinstance(text, str) else marker


def _facts(part: Content) -> Iterator[str]:
    """Yield facts about a part without its content."""
    for name in ("mimeType", "name", "uri"):
        if isinstance(part.get(name), str):
            yield str(part[name])[:200]
    encoded = part.get("data", part.get("blob"))
    if isinstance(encoded, str):
        yield f"{len(encoded.rstrip('=')) * 3 // 4} bytes"


def _picture(part: Content) -> InlineMedia | None:
    kind, encoded = part.get("mimeType"), part.get("data")
    is_picture = part.get("type") == "image" and kind in PICTURES and isinstance(encoded, str)
    if not is_picture or len(str(encoded)) > MAX_PICTURE_BYTES * 4 // 3 + 4:
        return None
    try:
        content = base64.b64decode(str(encoded), validate=True)
        return media(content, str(kind))
    except (binascii.Error, ValueError):
        return None
