"""Items are the parsed content of a source file, before they become entries of a stream.

An `Item` references other items by position. ``interop.append_items`` converts items to entries.
Invariant: every line of a source is in an item, a header, or the list of blank or malformed lines.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from perdure.codecs.fields import Fields, fields_of
from perdure.codecs.shared_keys import with_field, with_meta
from perdure.interop.formats.handover import Handover
from perdure.session.codec import encode
from perdure.session.entries import Lane
from perdure.session.ids import EntryId
from perdure.session.info import StreamHeader
from perdure.session.kinds import OPAQUE, TreeBody
from perdure.session.messages import MESSAGE, MESSAGE_VERSION, Message
from perdure.session.notes import SOURCE_FIELD, SideBody, SourcePlace, source_of

IMPORT = "import"
"""Key in a session's metadata for the description of its source."""

REDACTED = "redacted"
"""Key in a header's metadata for the kinds of values that redaction replaced.

``redacted`` is also the type of the side entry that replaces an original.
"""

_PATH_CHARS = 12
"""Number of digest characters that distinguish all paths of one person."""

ItemBody = Message | TreeBody | SideBody | bytes
"""The body of an item; bytes are the body of an ``opaque`` entry, an unreadable line."""


class Item(msgspec.Struct, gc=False):
    """A future entry, read from line `number` of the source; the line begins at byte `offset`.

    `parent` and `about` are positions of items. `references` maps each field of the body that names
    an entry to the position of the item that becomes this entry. Items of the same line have
    different values of `ordinal`. `group` marks the parts of one answer; only one of these parts
    has the usage of the answer. `meta` is the metadata that the source has about a message.
    """

    body: ItemBody
    number: int
    offset: int
    length: int
    ordinal: int = 0
    parent: int | None = None
    about: int | None = None
    at: int | None = None
    alias: str | None = None
    references: dict[str, int] | None = None
    group: str | None = None
    meta: dict[str, object] | None = None

    @property
    def lane(self) -> Lane:
        """The lane of the entry: tree (conversation) or side (about the conversation)."""
        return self.body.lane if isinstance(self.body, TreeBody | SideBody) else "tree"

    @property
    def kind(self) -> str:
        """The kind of the entry."""
        match self.body:
            case bytes():
                return OPAQUE
            case Message():
                return MESSAGE
            case body:
                return type(body).kind

    @property
    def version(self) -> int:
        """The version of the entry's kind."""
        if isinstance(self.body, TreeBody | SideBody):
            return type(self.body).version
        return MESSAGE_VERSION if isinstance(self.body, Message) else 1


def described_source(header: StreamHeader) -> Fields:
    """Return what a session's `header` states about the source; empty if it states nothing."""
    return fields_of((header.metadata or {}).get(IMPORT)) or {}


def named_by_path(header: SourceHeader, path: Path) -> SourceHeader:
    """Return `header`; if it has no session id, set an id that is derived from `path`."""
    if header.session is not None:
        return header
    path = path.absolute()
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:_PATH_CHARS]
    return msgspec.structs.replace(header, session=f"{path.stem}-{digest}")


class Malformed(NamedTuple):
    """A line that could not be read completely, and the reason."""

    number: int
    reason: str


class SourceHeader(msgspec.Struct, frozen=True):
    """Facts about the session of a source.

    `session` is the session's id in the other program; `metadata` is plain data. `parent` is the
    foreign id of the session from which this session was started. `is_subagent` means that a tool
    call in the parent started this session. `is_saved_whole` is True if the program rewrites the
    whole file at each save, so that an older version is not a prefix of a newer version. `handover`
    is the mark that perdure writes into a file for another program.
    """

    session: str | None = None
    created_at: int | None = None
    cwd: str | None = None
    metadata: dict[str, object] = {}
    parent: str | None = None
    is_subagent: bool = False
    is_saved_whole: bool = False
    handover: Handover | None = None


class ParsedSource(msgspec.Struct, frozen=True):
    """A parsed source.

    Shape: each of `items` comes after the items that it references. `leaf` is the position of the
    item after which the conversation continues. `blobs` are the media that the items reference. A
    malformed line can still become an item, because other items might need this item as their
    parent; the line is then in `malformed`, and its item in `items`.
    """

    format: str
    header: SourceHeader
    items: Sequence[Item]
    leaf: int | None
    blobs: tuple[bytes, ...]
    lines: int
    malformed: tuple[Malformed, ...]
    header_lines: tuple[int, ...]
    blank_lines: tuple[int, ...]
    warnings: tuple[str, ...]


def is_of_source(header: StreamHeader, parsed: ParsedSource) -> bool:
    """Return whether the session of `header` has the format and the session id of `parsed`."""
    described = described_source(header)
    named = (described.get("format"), described.get("session"))
    return named == (parsed.format, parsed.header.session)


class Ids(Protocol):
    """Maps the position of an item to the id of its entry."""

    def __getitem__(self, position: int, /) -> EntryId | None:
        """Return the entry id of the item at `position`; None if the item has no entry."""
        ...


def body_without_source(item: Item, ids: Ids) -> bytes:
    """Return the encoded body of `item`, without the item's place in the source.

    `ids` maps the position of each item to its entry id.
    """
    body = item.body
    if isinstance(body, bytes):
        return body
    if item.references:
        named = {name: ids[position] for name, position in item.references.items()}
        body = msgspec.structs.replace(body, **named)
    return with_meta(encode(body), item.meta)


def with_source(body: bytes, source: SourcePlace) -> bytes:
    """Return the JSON object `body` with ``source`` as its last field."""
    return with_field(body, SOURCE_FIELD, source)


def without_source(body: bytes) -> bytes:
    """Undo `with_source`; return `body` itself if it has no ``source`` at its end."""
    if source_of(body) is None:
        return body
    start = body.rindex(SOURCE_FIELD)
    return body[:start].removesuffix(b",") + b"}"
