"""Read data of the session: attachments as text, and truncated outputs.

Knowing a handle is not enough to read its data, because the handle must also occur in the session's
own log (`ToolCall.read_media`).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from perdure.errors import InvalidArguments, ToolError, ToolUnavailable
from perdure.session.media.inline import HANDLE
from perdure.tools.decorator import tool
from perdure.tools.spec import DEFAULT_OUTPUT_BYTES, ToolCall

PAGE_BYTES = DEFAULT_OUTPUT_BYTES - 1024

_Place = Annotated[int, Meta(ge=0)]


@tool(effect="read", on_unknown="retry")
async def read_media(
    handle: Annotated[str, "media://sha256-..., as it stands in the conversation."],
    start: Annotated[_Place, "The first byte to read, from 0."] = 0,
    end: Annotated[_Place | None, "The byte to stop before; left out: as much as fits."] = None,
    *,
    call: ToolCall,
) -> str:
    """Read a text stored in this session, for example the full text of a truncated output."""
    if HANDLE.fullmatch(handle) is None:
        raise InvalidArguments(call.tool, "handle: it is media://sha256- and 64 digits of base 16")
    if call.read_media is None:
        raise ToolUnavailable(call.tool, "there is no session to read from")
    content = await call.read_media(handle)
    if b"\0" in content[:8192]:
        raise ToolError(call.tool, f"it is no text ({len(content)} bytes)")
    if start > len(content):
        raise ToolError(call.tool, f"it has {len(content)} bytes, none at {start}")
    stop = min(len(content), start + PAGE_BYTES, len(content) if end is None else end)
    text = content[start:stop].decode(errors="ignore")
    if stop == len(content) or (end is not None and stop >= end):
        return text
    return f"{text}\n[bytes {start} to {stop} of {len(content)}; go on with start {stop}]"
