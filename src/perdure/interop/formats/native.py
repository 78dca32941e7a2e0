"""perdure's own export format: one session as a self-contained file, written and read.

A file consists of JSON lines: a header, the entries in order (``codec.line_of``), the foreign ids,
the blobs that the entries reference, and an end line by which a truncated file is detected. The
file of a fork also contains the entries that the fork shares with its origin, as the fork's own
entries. The same session always gives the same bytes, even when it is exported again after an
import. ``docs/log-format.md`` is the normative text.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, get_args

import msgspec

from perdure.codecs.lines import Line
from perdure.errors import CorruptLog, FormatError, UnsupportedVersion
from perdure.interop.formats.sources.content import Content, Held, lines_in
from perdure.session.codec import BODIES, body_of, encode, entry_of_line, line_of
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId, blob_hash, entry_id
from perdure.session.info import StreamHeader

FORMAT: Final = "perdure"
VERSION = 1

_LARGEST = 2**63 - 1
_BLOB_NAME = re.compile(rb"sha256-[0-9a-f]{64}")


class Bundle(msgspec.Struct, frozen=True):
    """A self-contained session.

    Shape: `entries` have the seqs 0, 1, 2, … of the stream in `header`, which is never a fork.
    `aliases` maps foreign ids to entries. If the bundle is made from a fork or from a single
    branch, its entry ids differ from those in the store, and `stored_ids` maps the ids in the
    bundle to the ids in the store.
    """

    header: StreamHeader
    entries: tuple[Entry, ...]
    aliases: Mapping[str, EntryId]
    blobs: tuple[bytes, ...]
    stored_ids: Mapping[EntryId, EntryId] = {}


class _Header(msgspec.Struct):
    type: str
    version: int
    stream: StreamHeader


class Named(msgspec.Struct, frozen=True, tag="aliases"):
    """The content of a line that maps foreign ids to entries."""

    aliases: Mapping[str, EntryId]


class _Blob(msgspec.Struct, tag="blob"):
    hash: str
    base64: str


class _End(msgspec.Struct, tag="end"):
    entries: int
    blobs: int


_header = msgspec.json.Decoder(_Header)
_closing = msgspec.json.Decoder(Named | _Blob | _End)


def write_bundle(bundle: Bundle) -> bytes:
    """Return the content of the export file for `bundle`."""
    return b"".join(line + b"\n" for line in _lines(bundle))


def _lines(bundle: Bundle) -> Iterator[bytes]:
    yield encode(_Header(FORMAT, VERSION, bundle.header))
    for entry in bundle.entries:
        yield line_of(entry)
    if bundle.aliases:
        yield encode(Named(dict(sorted(bundle.aliases.items()))))
    named = sorted((blob_hash(content), content) for content in bundle.blobs)
    for digest, content in named:
        yield encode(_Blob(digest, b64encode(content).decode()))
    yield encode(_End(len(bundle.entries), len(named)))


class Kept(msgspec.Struct, frozen=True):
    """The content of a line with a blob. The name of the blob is the hash of its content."""

    name: str
    content: bytes


NativeRecord = Entry | Named | Kept
"""The content of one line of a file. The first and the last line have other types."""


def parse(content: bytes, name: str) -> Bundle:
    """Parse the session in the file `content` completely in memory.

    Errors use `name` as the name of the file.
    Raises: the errors of `open_file`.
    """
    header, records = open_file(Held(content, name))
    entries: list[Entry] = []
    aliases: dict[str, EntryId] = {}
    blobs: list[bytes] = []
    for _, record in records:
        match record:
            case Entry():
                entries.append(record)
            case Named():
                aliases.update(record.aliases)
            case Kept():
                blobs.append(record.content)
    return Bundle(header, tuple(entries), aliases, tuple(blobs))


def open_file(content: Content) -> tuple[StreamHeader, Iterator[tuple[Line, NativeRecord]]]:
    """Return the header of the file `content`, and an iterator that reads its other lines.

    Raises: FormatError if a line is damaged or missing, or if a newer version of perdure wrote the
    file. The iterator checks the lines as it reads them, so only a complete iteration proves that
    the file is complete.
    """
    lines = lines_in(content)
    header = _read_header(next(lines, Line(1, 0, b"")), content.name)
    return header, _records(lines, content.name, header)


def _read_header(line: Line, name: str) -> StreamHeader:
    try:
        header = _header.decode(line.content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(name, "its first line is no header of a perdure export") from error
    if header.type != FORMAT:
        raise FormatError(name, "its first line is no header of a perdure export")
    if header.version > VERSION:
        raise FormatError(name, f"it has version {header.version}; this perdure knows {VERSION}")
    if not -_LARGEST <= header.stream.created_at <= _LARGEST:
        raise FormatError(name, "its first line is damaged: it was made at no time there is")
    if header.stream.fork is not None:
        raise FormatError(name, "its first line is damaged: a session on its own is no fork")
    return header.stream


def _records(
    lines: Iterator[Line], name: str, header: StreamHeader
) -> Iterator[tuple[Line, NativeRecord]]:
    reader = _Reader(header)
    for line in lines:
        try:
            record = reader.read(line.content)
        except (ValueError, RecursionError, CorruptLog) as error:
            raise FormatError(name, f"line {line.number} is damaged ({error})") from error
        if record is not None:
            yield line, record
    if not reader.is_ended:
        raise FormatError(name, "it is cut off: the end line is missing")


class _Reader:
    """Reads and counts the lines after the header."""

    def __init__(self, header: StreamHeader) -> None:
        self._stream = header.id
        self._entries = 0
        self._blobs = 0
        self.is_ended = False

    def read(self, line: bytes) -> NativeRecord | None:
        """Return the content of `line`; None for the end line."""
        if not line.startswith(b'{"type":'):
            return self._entry(entry_of_line(line))
        closing = _closing.decode(line)
        if isinstance(closing, Named):
            return closing
        if isinstance(closing, _Blob):
            return self._blob(closing.hash, b64decode(closing.base64, validate=True))
        if (closing.entries, closing.blobs) != (self._entries, self._blobs):
            raise ValueError("lines before it are missing")
        self.is_ended = True
        return None

    def _entry(self, entry: Entry) -> Entry:
        expected = entry_id(self._stream, self._entries)
        if entry.id != expected:
            raise ValueError(f"entry {entry.id} where {expected} should be")
        if not (-_LARGEST <= entry.at <= _LARGEST and 0 < entry.v <= _LARGEST):
            raise ValueError(f"entry {entry.id} has a number that no log can hold")
        with suppress(UnsupportedVersion):  # of a newer perdure: kept unchanged
            body_of(entry)
        self._entries += 1
        return entry

    def _blob(self, name: str, content: bytes) -> Kept:
        if blob_hash(content) != name:
            raise ValueError(f"the content of {name} has another hash")
        self._blobs += 1
        return Kept(name, content)


def blob_of_line(line: bytes) -> bytes:
    """Return the blob in a line that was checked before."""
    record = _closing.decode(line)
    assert isinstance(record, _Blob)
    return b64decode(record.base64)


def blob_names(entries: Sequence[Entry]) -> list[str]:
    """Return the names of blobs in the bodies of `entries`, in order and without duplicates.

    Shape: the result can include texts that only look like the name of a blob.
    """
    found = (name for entry in entries for name in _BLOB_NAME.findall(entry.body))
    return [name.decode() for name in dict.fromkeys(found)]


# -- the same session under other ids


def _names_an_entry(annotation: object) -> bool:
    return annotation is EntryId or EntryId in get_args(annotation)


_REFERENCES: dict[str, tuple[str, ...]] = {
    kind: names
    for kind, body in BODIES.items()
    if (
        names := tuple(
            field.encode_name
            for field in msgspec.structs.fields(body)
            if _names_an_entry(field.type)
        )
    )
}
"""Maps each kind to those fields of its body that contain entry ids."""

_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def move_entry(
    entry: Entry, stream: StreamId, seq: int, ids: Mapping[EntryId, EntryId], body: bytes = b""
) -> Entry:
    """Return `entry` as the entry `seq` of `stream`; `ids` maps old to new ids of all entries.

    If `body` is given, it replaces the body of the entry.
    """
    return Entry(
        stream=stream,
        seq=seq,
        lane=entry.lane,
        parent_id=_new_id(entry.parent_id, ids),
        about=_new_id(entry.about, ids),
        at=entry.at,
        kind=entry.kind,
        v=entry.v,
        body=_with_references(entry.kind, body or entry.body, ids),
    )


def _new_id(entry: EntryId | None, ids: Mapping[EntryId, EntryId]) -> EntryId | None:
    return None if entry is None else ids.get(entry, entry)


def _with_references(kind: str, body: bytes, ids: Mapping[EntryId, EntryId]) -> bytes:
    names = _REFERENCES.get(kind, ())
    if not names or not body:  # an erased entry has none
        return body
    fields = _raw_object.decode(body)
    changed = False
    for name in names:
        old = msgspec.json.decode(fields[name]) if name in fields else None
        if isinstance(old, str) and EntryId(old) in ids:
            fields[name] = msgspec.Raw(encode(ids[EntryId(old)]))
            changed = True
    return encode(fields) if changed else body
