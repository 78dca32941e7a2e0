"""What every dialect has: the shape of its contract, and what of it the two tools have alike.

A dialect turns a body into the records its tool would have written for it, and says what a record
means. Where it has no record for something, `custom` carries it: both tools keep that and never
show it to a model. Nothing here decides where a record stands.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Protocol

import msgspec

from perdure.codecs.alike import title_in
from perdure.codecs.fields import Fields, count_in, name_in, number_in, object_in, text_in
from perdure.codecs.ids import record_digest
from perdure.session.codec import Body
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, blob_hash
from perdure.session.kinds import Custom, TreeBody
from perdure.session.media.inline import SCHEME
from perdure.session.messages import MICROCENTS_PER_DOLLAR, MediaPart, Message, UnknownPart, Usage
from perdure.session.notes import SideBody

_DATA_URL = re.compile(r"data:([^;,]*);base64,")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Said(msgspec.Struct, frozen=True):
    """What a record says. `about`, and the values of `references`, are ids of records.

    `references` are fields of the body that name an entry; the body has None there. `media` are
    the contents of its media parts.
    """

    body: Message | TreeBody | SideBody
    about: str | None = None
    references: tuple[tuple[str, str], ...] = ()
    media: tuple[bytes, ...] = ()


class Writing(msgspec.Struct, frozen=True):
    """What records are made with.

    `id` gives the record that stands for an entry, `blob` a content; None where there is none.
    `own` is the first record's own id.
    """

    own: str
    id: Callable[[EntryId], str | None]
    blob: Callable[[str], bytes | None]


class Dialect(Protocol):
    """One tool's way to write a session."""

    @property
    def name(self) -> str:
        """How an address names it."""
        ...

    @property
    def is_escaped(self) -> bool:
        """Its tool ends lines at more than LF."""
        ...

    @property
    def has_leaf_record(self) -> bool:
        """Its tool has a record that moves the leaf; else it goes on from the last record."""
        ...

    @property
    def oldest_version(self) -> int:
        """Files of older versions are rewritten by their tool, so nothing is appended to them."""
        ...

    def file_name(self, at: int, session: str) -> str:
        """The file of a session created at `at`."""
        ...

    def header(self, session: str, at: int, cwd: str | None, parent: str | None) -> Fields:
        """The first record; `parent` is the file of the session it was forked from."""
        ...

    def records(self, entry: Entry, body: Body, writing: Writing) -> list[Fields]:
        """The records for `entry`, each to follow the one before; empty where there is no form."""
        ...

    def custom(self, custom_type: str, data: Fields) -> Fields:
        """A record outside every context."""
        ...

    def placed(self, record: Fields, id: str, parent: str | None, at: int) -> Fields:
        """`record` with its id, parent and time, in the tool's own order."""
        ...

    def time_of(self, timestamp: float | str | None) -> int | None:
        """The time a record gives, in Unix milliseconds."""
        ...

    def said(self, fields: Fields) -> Said:
        """What a record of this dialect means."""
        ...


def record_id(entry: str, ordinal: int = 0) -> str:
    """The id of the record `ordinal` that stands for `entry`.

    Twice as long as the tools' own, so that no two meet in files of any size.
    """
    return record_digest(entry, ordinal).hex()[:16]


def numbered(index: int) -> str:
    """What stands for the id of the record of that number, the header's being 0."""
    return f"#{index}"


def local_name(at: int, session: str, form: str) -> str:
    """``<local time>_<session>.jsonl``."""
    try:
        moment = (_EPOCH + timedelta(milliseconds=at)).astimezone()
    except OverflowError:
        moment = _EPOCH
    return f"{moment.strftime(form)}_{session}.jsonl"


def base64_of(part: MediaPart, writing: Writing) -> str | None:
    """The content of `part`; None when it is not kept here."""
    content = writing.blob(part.handle.removeprefix(SCHEME))
    return None if content is None else b64encode(content).decode()


def media_of(data: str, mime_type: str | None) -> tuple[MediaPart, bytes] | None:
    """The part for base64 `data`, bare or in a ``data:`` URL; None when it is neither."""
    url = _DATA_URL.match(data)
    if url is not None:
        data, mime_type = data[url.end() :], mime_type or url.group(1) or None
    try:
        content = b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    handle = SCHEME + blob_hash(content)
    return MediaPart(mime_type or mime_type_of(content), handle, len(content)), content


def mime_type_of(content: bytes) -> str:
    """What `content` begins like."""
    for start, mime_type in _STARTS:
        if content.startswith(start):
            return mime_type
    return "application/octet-stream"


_STARTS = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
)


def unknown_part(fields: Fields) -> UnknownPart:
    """A part of a type nobody here knows, without a provider's signature."""
    kept = {key: fields[key] for key in fields if not key.lower().endswith("signature")}
    return UnknownPart(msgspec.Raw(msgspec.json.encode(kept)))


def usage_from(fields: Fields | None, names: tuple[str, str, str, str]) -> Usage | None:
    """Reported usage, its token classes under `names`; None where nothing was counted."""
    if fields is None:
        return None
    dollars = number_in(object_in(fields, "cost") or {}, "total")
    is_known = dollars is not None and 0 < dollars < 10**7
    read, written, cached, kept = (count_in(fields, name) for name in names)
    cost = round(dollars * MICROCENTS_PER_DOLLAR) if dollars is not None and is_known else None
    usage = Usage(read, written, cached, kept, cost)
    return usage if usage.total_tokens else None


def reference(name: str, fields: Fields, key: str) -> tuple[tuple[str, str], ...]:
    """The field `name` of a body, if the record names an entry at `key`."""
    target = name_in(fields, key)
    return () if target is None else ((name, target),)


def titled(fields: Fields) -> Said:
    """What a ``session_info`` record says."""
    return Said(title_in(fields))


def unknown_record(tool: str, fields: Fields, place: Collection[str]) -> Said:
    """A record that nobody here knows: a link of its branch, with all but its `place`."""
    kind = text_in(fields, "type") or "record"
    data = {key: value for key, value in fields.items() if key not in place}
    return Said(Custom(f"{tool}:{kind}", data))
