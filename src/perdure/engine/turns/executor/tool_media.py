"""Read stored content for a tool: media in its session's messages, and truncated outputs.

Knowing a handle does not give access to its content. The log itself must reference the handle: as a
part of a message on the branch, or as the full output of a tool. If a handle occurs only in a text,
this does not count as a reference.
"""

from __future__ import annotations

from collections.abc import Iterator

from perdure.errors import EntryNotFound, ToolDenied, ToolError
from perdure.session.codec import body_of
from perdure.session.ids import StreamId
from perdure.session.kinds import MESSAGE
from perdure.session.ledger import ToolFinished
from perdure.session.media.inline import SCHEME
from perdure.session.messages import MediaPart, Message, ToolCallPart, ToolResultPart
from perdure.stores.session_store import SessionStore

_WHO = "read_media"


async def read_content(store: SessionStore, stream: StreamId, handle: str) -> bytes:
    """Return the content of `handle`, if the session `stream` references it.

    Raises: ToolDenied if the session does not reference `handle`; ToolError if the content no
    longer exists.
    """
    if not await _is_held(store, stream, handle):
        raise ToolDenied(_WHO, "this session holds no such thing")
    try:
        return await store.blob(handle.removeprefix(SCHEME))
    except EntryNotFound:
        raise ToolError(_WHO, "it is no longer kept") from None


async def _is_held(store: SessionStore, stream: StreamId, handle: str) -> bool:
    for note in await store.notes(stream, (ToolFinished.kind,)):
        body = body_of(note)
        if isinstance(body, ToolFinished) and body.whole == handle:
            return True
    leaf = (await store.state(stream)).leaf
    for entry in await store.branch(stream, leaf, kind=MESSAGE):
        message = entry.message
        if message is not None and handle in _handles(message):
            return True
    return False


def _handles(message: Message) -> Iterator[str]:
    for part in message.parts:
        if isinstance(part, MediaPart):
            yield part.handle
        elif isinstance(part, ToolResultPart):
            yield from (media.handle for media in part.media)
            yield from part.contents
        elif isinstance(part, ToolCallPart):
            yield from part.contents
