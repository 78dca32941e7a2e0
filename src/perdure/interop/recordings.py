"""Find the session that was imported from a file, without importing the file.

This module only reads the store. The possible ids of the session are computed as in an import, so
the session is found even if the file was moved, has grown, or was rewritten.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from perdure.errors import Erased, FormatError, SessionNotFound
from perdure.interop.formats import detection, native
from perdure.interop.formats.items import is_of_source
from perdure.interop.formats.logs import LogFile
from perdure.interop.formats.sources.content import FileContent, first_line
from perdure.interop.formats.sources.reader import Source
from perdure.interop.imports import source_of_format
from perdure.interop.matching import WRITTEN_HERE, own_file_of, session_ids
from perdure.interop.source_files import FileRelation, originals_of, relation_of
from perdure.session.ids import StreamId
from perdure.session.notes import ImportSource
from perdure.stores.session_store import SessionStore, is_erased, state_unless_erased


class Recorded(msgspec.Struct, frozen=True):
    """The session that was imported from a file.

    `is_behind` means that the file has newer content.
    """

    session: StreamId
    is_behind: bool = False


async def imported_as(store: SessionStore, file: Path) -> Recorded | None:
    """Return the session of `store` that was imported from `file`, or None.

    Raises: Erased if the session that was imported from `file` was erased. Raises FormatError if
    `file` is not a readable session.
    """
    with FileContent(file) as content:
        format = await asyncio.to_thread(detection.detect_format, content)
        if format is None:
            raise FormatError(str(file), "not a recognized session file")
        if format == native.FORMAT:
            log = await asyncio.to_thread(LogFile, content)
            return await _native(store, log.header.id)
        source = await asyncio.to_thread(source_of_format, content, format)
        return await _find_recorded(store, source)


async def _find_recorded(store: SessionStore, source: Source) -> Recorded | None:
    parsed = source.parsed
    first = await asyncio.to_thread(first_line, source.content)
    erased: StreamId | None = None
    for stream in session_ids(parsed.format, parsed.header.session, first):
        if await is_erased(store, stream):
            erased = erased or stream
            continue
        try:
            found = await _made_of(store, stream, source)
        except SessionNotFound:
            if erased is not None:
                raise Erased(erased) from None
            return None
        if found is not None:
            return found
    raise AssertionError("session_ids never ends")


async def _native(store: SessionStore, stream: StreamId) -> Recorded | None:
    try:
        state = await state_unless_erased(store, stream)
    except SessionNotFound:
        return None
    if state is None:
        raise Erased(stream)
    return Recorded(state.header.id)


async def _made_of(store: SessionStore, stream: StreamId, source: Source) -> Recorded | None:
    """Return the session `stream` if `source` was imported to it or exported from it; else None."""
    parsed = source.parsed
    state = await store.state(stream)
    is_of = is_of_source(state.header, parsed)
    originals = originals_of(await store.notes(stream, (ImportSource.kind,)), parsed.format)
    relations = {relation_of(source.content, original) for original in originals}
    has_relation = bool(relations - {FileRelation.OTHER})
    if has_relation or (is_of and (not originals or parsed.header.is_saved_whole)):
        is_whole = bool(relations & {FileRelation.SAME, FileRelation.OLDER})
        return Recorded(stream, is_behind=not is_whole or originals[-1].is_cut_off)
    own = await own_file_of(store, state, source) if parsed.format in WRITTEN_HERE else None
    return None if own is None else Recorded(stream, is_behind=not own.is_complete)
