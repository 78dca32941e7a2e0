"""Find the session of a source: by its possible ids, or by records that perdure wrote.

The possible ids of the session are computed from the source alone. Therefore a later import of the
source finds its session again, whatever other sessions exist.

A file that perdure wrote for pi or Operator has the id of its session, and the ids of its records
are derived from perdure's entry ids. An id alone does not prove that perdure wrote a record. A
record counts as perdure's only if a current export of the session contains an equal record with the
same id, below the same parent. All new records in the file must come after the records that perdure
wrote. A file that perdure wrote for Claude Code, Codex or opencode becomes a separate session. The
parent of this session is the session that the mark in the file names.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from perdure.codecs.fields import fields_of
from perdure.codecs.ids import HEADER_TITLE, written_id, written_ids
from perdure.codecs.operator import words as operator_words
from perdure.codecs.pi import words as pi_words
from perdure.errors import SessionNotFound
from perdure.interop.append_items import Base
from perdure.interop.bundle import bundle_of
from perdure.interop.formats.items import (
    Item,
    SourceHeader,
    body_without_source,
    without_source,
)
from perdure.interop.formats.native import Bundle
from perdure.interop.formats.operator import reader as operator
from perdure.interop.formats.pi import reader as pi
from perdure.interop.formats.sources.reader import Source
from perdure.interop.reports import ImportReport, Lost, only_copies, still_erased
from perdure.session.codec import encode
from perdure.session.entries import Entry, Lane
from perdure.session.ids import EntryId, StreamId, entry_id, entry_place, stream_id
from perdure.session.messages import MESSAGE
from perdure.session.notes import ContentErased, ImportSource
from perdure.stores.access.lazy_modules import Later
from perdure.stores.protocol import StreamState
from perdure.stores.session_store import SessionStore, state_unless_erased

if TYPE_CHECKING:
    from perdure.interop import pi_export
    from perdure.interop.formats.operator import writer
else:
    pi_export = Later("perdure.interop.pi_export")
    writer = Later("perdure.interop.formats.operator.writer")

WRITTEN_HERE = (pi_words.FORMAT, operator_words.FORMAT)
"""Formats of exported files in which perdure derives the record ids from its own entry ids."""

_LONGEST_BASE = 120  # leaves room for the number within the 128 characters of an id


def session_ids(format: str, foreign: str | None, first_line: bytes) -> Iterator[StreamId]:
    """Yield the possible ids of the session for a source of `format`, in an endless series.

    `foreign` is the session id in the source; `first_line` distinguishes sources without an id.
    Shape: the first id is the foreign id if it is valid; otherwise, the first id is made from a
    digest of the foreign id or, without a foreign id, of the first line. The following ids are the
    first id with ``.2``, ``.3`` and so on, in case another session has the first id.
    """
    base = _valid(foreign) or f"{format}-{_digest(foreign, first_line)}"
    yield StreamId(base)
    for number in count(2):
        yield StreamId(f"{base[:_LONGEST_BASE]}.{number}")


def _valid(foreign: str | None) -> StreamId | None:
    try:
        return None if foreign is None else stream_id(foreign)
    except ValueError:
        return None


def _digest(foreign: str | None, first_line: bytes) -> str:
    told = first_line if foreign is None else foreign.encode()
    return hashlib.sha256(told).hexdigest()[:24]


_decoder = msgspec.json.Decoder(dict[str, object])


Origin = tuple[StreamId | None, ImportReport | None]
"""The session that a file continues, and the report if nothing of the file is imported."""


async def origin_of(store: SessionStore, source: Source, *, again: bool) -> Origin:
    """Return the session of `store` that `source` continues.

    The second value is a report if nothing is imported. Nothing is imported if `source` adds no
    message to that session, or if the session was erased and `again` is False.
    """
    mark, format = source.parsed.header.handover, source.parsed.format
    session = None if mark is None else _valid(mark.session)
    if mark is None or session is None:
        return None, None
    try:
        if await state_unless_erased(store, session) is None:
            return None, None if again else still_erased(Lost(session), format)
    except SessionNotFound:
        return None, None
    items = source.parsed.items
    if any(item.number > mark.lines and item.kind == MESSAGE for item in items):
        return session, None
    return session, only_copies(session, format)


async def has_lost_entries(store: SessionStore, stream: StreamId) -> bool:
    """Return whether entries of the session `stream` were erased."""
    erasures = await store.notes(stream, (ContentErased.kind,))
    return any(note.stream == stream for note in erasures)


def copied_lines(header: SourceHeader, parent: StreamId | None) -> int:
    """Return how many first lines of a file with `header` are copies of entries of `parent`."""
    mark = header.handover
    return mark.lines if mark is not None and mark.session == parent else 0


class OwnFile(msgspec.Struct, frozen=True):
    """What a session already contains of a file that perdure wrote.

    `is_complete` is True if the session contains the whole file.
    """

    base: Base
    is_complete: bool


class _Said(NamedTuple):
    """The content of an item; the items that it references are given by their record ids.

    Shape: `parent` is the record id of the parent; None for a root or a side entry. Titles and
    labels are compared without a parent, because their parent in a file is only the leaf at the
    time when perdure wrote the file.
    """

    lane: Lane
    kind: str
    body: bytes
    parent: str | None


async def own_file_of(store: SessionStore, state: StreamState, source: Source) -> OwnFile | None:
    """Return which part of `source` the session already contains.

    The result is None if perdure did not write `source` as an export of this session.
    Raises: SessionNotFound if the session does not exist.
    """
    bundle = await bundle_of(store, state.header.id)
    return await asyncio.to_thread(_own_file, bundle, state, source)


def _own_file(bundle: Bundle, state: StreamState, source: Source) -> OwnFile | None:
    written = dict(_said(_written(bundle, source.parsed.format)))
    entries = written_ids(_stored(bundle))
    known: dict[int, EntryId] = {}
    reached = 0
    titled = written_id(entry_id(state.header.id, HEADER_TITLE))
    left_out: list[int] = []
    items = (item for stretch in source.stretches() for item in stretch.items)
    for position, (name, said) in enumerate(_said(items)):
        entry = entries.get(name)
        if name == titled and reached == position:  # of the header; it may have changed
            reached += 1
            left_out.append(position)
            continue
        is_replaced = said.lane == "side" and entry is not None  # a later label, title or leaf
        if name not in written and not is_replaced:
            continue
        if written.get(name, said) != said or reached != position:
            return None
        reached += 1
        if entry is not None:
            known[position] = entry
    if not known:
        return None
    base = Base(
        stream=state.header.id,
        head=state.head,
        leaf=state.leaf,
        known=known,
        has_own_leaf=not _is_on_path(source, known, state.leaf),
        left_out=left_out,
    )
    return OwnFile(base, is_complete=reached == len(source.parsed.items))


def _written(bundle: Bundle, format: str) -> Sequence[Item]:
    """Return the items of a new export of `bundle`, in which perdure created all record ids."""
    entries = tuple(
        msgspec.structs.replace(entry, body=without_source(entry.body))
        for entry in bundle.entries
        if entry.kind != ImportSource.kind
    )
    plain = msgspec.structs.replace(bundle, entries=entries)
    if format == operator_words.FORMAT:
        return operator.parse(writer.file_of(plain).content).items
    return pi.parse(pi_export.pi_of(plain).content).items


def _stored(bundle: Bundle) -> Iterator[Entry]:
    """Yield the entries of `bundle` under the ids that they have in the store."""
    for entry in bundle.entries:
        stream, seq = entry_place(bundle.stored_ids.get(entry.id, entry.id))
        yield msgspec.structs.replace(entry, stream=stream, seq=seq)


def _said(items: Iterable[Item]) -> Iterator[tuple[str, _Said]]:
    """Yield the record id and the content of each item."""
    names: dict[int, EntryId] = {}
    for position, item in enumerate(items):
        names[position] = EntryId(item.alias or f"#{position}")
        body = body_without_source(msgspec.structs.replace(item, meta=None), names)
        parent = None if item.parent is None else names[item.parent]
        yield names[position], _Said(item.lane, item.kind, _unplaced(body), parent)


def _unplaced(body: bytes) -> bytes:
    """Return `body` without the field ``data.body.source``, if `body` has this field."""
    if b'"source":' not in body:
        return body
    try:
        value = _decoder.decode(body)
    except (ValueError, RecursionError):
        return body
    whole = fields_of((fields_of(value.get("data")) or {}).get("body")) or {}
    whole.pop("source", None)
    return encode(value)


def _is_on_path(source: Source, known: Mapping[int, EntryId], leaf: EntryId | None) -> bool:
    """Return whether `source` continues the conversation from `leaf`."""
    position = source.parsed.leaf
    while position is not None and known.get(position) != leaf:
        position = source.parsed.items[position].parent
    return position is not None
