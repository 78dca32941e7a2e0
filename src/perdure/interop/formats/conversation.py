"""Build the conversation of a session's next request, so that another program can continue it.

The functions of this module are pure. Compactions are applied, and every tool call has a result.
Ids and names are derived from the session and its leaf, so the same conversation always gives the
same file.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from uuid import UUID

import msgspec

from perdure.context.build import build_context
from perdure.context.pins import pins_of, with_pins
from perdure.interop.formats.bundles import branch_of, standing_of
from perdure.interop.formats.handover import Handover, conversation_id
from perdure.interop.formats.native import Bundle
from perdure.session.fold import window_of
from perdure.session.ids import EntryId, StreamId, blob_hash
from perdure.session.media.inline import SCHEME
from perdure.session.messages import MediaPart, Message

_OUTSIDE_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_MOST_NAME_CHARS = 64
_ID_CHARS = 32

OTHER_ENTRIES = "entry outside the context"
"""The loss that counts entries outside the conversation: older ones, other branches, settings."""


class Said(msgspec.Struct, frozen=True):
    """A message and its time. Units: `at` is Unix milliseconds."""

    message: Message
    at: int


class Conversation(msgspec.Struct, frozen=True):
    """The conversation that another program continues.

    Shape: `id` is derived from the session and its leaf, so a session that was continued gets
    another id. `left_out` is the number of messages and other tree entries of the session that are
    not in the context. `media` maps the handle of each media part to its content.
    """

    session: StreamId
    leaf: EntryId | None
    id: UUID
    cwd: str | None
    title: str | None
    created_at: int
    said: tuple[Said, ...]
    left_out: int
    media: Mapping[str, bytes]

    def handover(self, lines: int) -> Mapping[str, object]:
        """Return the handover mark for a file whose first `lines` lines come from this session."""
        return Handover(self.session, str(self.leaf), lines).mark

    def base64(self, part: MediaPart) -> str | None:
        """Return the content of `part` in Base64; None if the store no longer contains it."""
        content = self.media.get(part.handle)
        return None if content is None else b64encode(content).decode()


def conversation_of(bundle: Bundle) -> Conversation:
    """Return the conversation at the leaf of the session in `bundle`."""
    standing = standing_of(bundle)
    branch = branch_of(bundle, standing.leaf)
    window = with_pins(window_of(branch, standing.undone), branch, pins_of(bundle.entries))
    times = {entry.id: entry.at for entry in branch}
    said: list[Said] = []
    newest = bundle.header.created_at
    held = 0
    for each in build_context(window).messages:
        newest = max([newest, *(times[id] for id in each.entry_ids if id in times)])
        held += len(each.entry_ids)
        said.append(Said(each.message, newest))
    stream = bundle.header.id
    return Conversation(
        session=stream,
        leaf=standing.leaf,
        id=conversation_id(stream, standing.leaf),
        cwd=standing.cwd,
        title=standing.title,
        created_at=bundle.header.created_at,
        said=tuple(said),
        left_out=sum(entry.lane == "tree" for entry in bundle.entries) - held,
        media={SCHEME + blob_hash(content): content for content in bundle.blobs},
    )


def allowed_name(name: str) -> str:
    """Return the name of a tool as providers allow it: letters, digits, ``_`` and ``-``."""
    return _OUTSIDE_NAMES.sub("_", name)[:_MOST_NAME_CHARS] or "_"


def allowed_id(call_id: str) -> str:
    """Return the id of a tool call in a form that providers allow; different ids stay different."""
    is_allowed = allowed_name(call_id) == call_id
    return call_id if is_allowed else f"call_{blob_hash(call_id.encode())[-_ID_CHARS:]}"


def named(part: MediaPart) -> str:
    """Return the text that replaces media whose content cannot be written."""
    name = f" {part.name}" if part.name else ""
    return f"[{part.mime_type}{name}, {part.byte_length} bytes, not exported]"
