"""Read a session from a store as a self-contained bundle. The session can be a fork.

A fork shares entries with its origin. The bundle of a fork contains copies of the shared entries,
in the order of the origin's log, followed by the entries of the fork's log. All entries and
references of the bundle are renumbered. If a fork shares only one path, its bundle contains only
that path and its labels, without the stored copy of the imported file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from perdure.errors import EntryNotFound
from perdure.interop.formats.items import with_source, without_source
from perdure.interop.formats.native import Bundle, blob_names, move_entry
from perdure.session.codec import ENTRY_NOTES, body_of, new_side
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId, entry_id, entry_place
from perdure.session.info import ForkPoint, StreamHeader
from perdure.session.notes import ImportSource, LeafMoved, SessionInfoChanged, source_of
from perdure.stores.protocol import StreamState
from perdure.stores.session_store import SessionStore

_INHERITED = (*ENTRY_NOTES, ImportSource.kind)


async def bundle_of(store: SessionStore, stream: StreamId) -> Bundle:
    """Return the session `stream` in its current state, as a bundle.

    Raises: SessionNotFound if the session does not exist.
    """
    state = await store.state(stream)
    own = await store.entries(stream)
    aliases = await store.aliases(stream)
    if state.header.fork is None:
        blobs = tuple((await blobs_of(store, own)).values())
        header = msgspec.structs.replace(state.header, received=0)
        return Bundle(header, tuple(own), aliases, blobs)
    return await _of_fork(store, state, state.header.fork, own, aliases)


async def blobs_of(store: SessionStore, entries: Sequence[Entry]) -> dict[str, bytes]:
    """Return the blobs that `entries` refer to, in order; the keys are the blobs' names."""
    found: dict[str, bytes] = {}
    for name in blob_names(entries):
        with suppress(EntryNotFound):  # a text that only looks like the name of a blob
            found[name] = await store.blob(name)
    return found


async def _of_fork(
    store: SessionStore,
    state: StreamState,
    fork: ForkPoint,
    own: Sequence[Entry],
    aliases: dict[str, EntryId],
) -> Bundle:
    origins = await _origins(store, fork)
    stream = state.header.id
    noted = [*_INHERITED, SessionInfoChanged.kind]
    seen = [*await store.tree(stream), *await store.notes(stream, noted)]
    order = {origin.header.id: n for n, origin in enumerate(origins)}
    shared = [entry for entry in seen if entry.stream in order]
    shared.sort(key=lambda entry: (order[entry.stream], entry.seq))
    header = _header(state.header, origins, shared)
    has_originals = fork.scope == "tree" and all(
        origin.header.fork is None or origin.header.fork.scope == "tree" for origin in origins
    )
    kept = _inherited_entries(shared, has_originals=has_originals)
    entries, ids = _renumber(header, kept, fork.leaf, own)
    names: dict[str, EntryId] = {}
    for origin in origins:
        names.update(await store.aliases(origin.header.id))
    names.update(aliases)
    known = {alias: ids[entry] for alias, entry in names.items() if entry in ids}
    stored = {new: old for old, new in ids.items()}
    blobs = tuple((await blobs_of(store, entries)).values())
    return Bundle(header, entries, known, blobs, stored)


async def _origins(store: SessionStore, fork: ForkPoint | None) -> list[StreamState]:
    """Return the streams with which a fork shares entries, the oldest first."""
    found: list[StreamState] = []
    while fork is not None:
        found.append(await store.state(fork.stream))
        fork = found[-1].header.fork
    return found[::-1]


def _header(
    header: StreamHeader, origins: Sequence[StreamState], shared: Sequence[Entry]
) -> StreamHeader:
    """Return `header` without its fork point, but with the inherited title and directory."""
    title, cwd = None, None
    for origin in origins:
        title, cwd = origin.header.title or title, origin.header.cwd or cwd
        for entry in shared:
            change = body_of(entry) if entry.kind == SessionInfoChanged.kind else None
            if isinstance(change, SessionInfoChanged) and entry.stream == origin.header.id:
                title = title if change.title is msgspec.UNSET else change.title
                cwd = cwd if change.cwd is msgspec.UNSET else change.cwd
    return msgspec.structs.replace(
        header,
        title=header.title or title,
        cwd=header.cwd or cwd,
        parent=origins[-1].header.id,
        fork=None,
        received=0,
    )


def _inherited_entries(shared: Sequence[Entry], *, has_originals: bool) -> list[Entry]:
    """Return the `shared` entries that a fork's bundle contains.

    The result contains the tree entries and the notes about them and, with `has_originals`, the
    pieces of imported files.
    """
    tree = {entry.id for entry in shared if entry.lane == "tree"}
    kinds = {ImportSource.kind} if has_originals else set[str]()
    kept = [
        entry
        for entry in shared
        if entry.lane == "tree"
        or entry.kind in kinds
        or (entry.kind in ENTRY_NOTES and entry.about in tree)
    ]
    if has_originals:
        return kept
    return [msgspec.structs.replace(entry, body=without_source(entry.body)) for entry in kept]


def _renumber(
    header: StreamHeader, shared: Sequence[Entry], leaf: EntryId | None, own: Sequence[Entry]
) -> tuple[tuple[Entry, ...], dict[EntryId, EntryId]]:
    """Return `shared` and `own` as one renumbered log, and the map from old to new ids."""
    last = next((entry.id for entry in reversed(shared) if entry.lane == "tree"), None)
    old = [*shared, *([] if leaf == last else [_leaf(header, leaf)]), *own]
    ids = {entry.id: entry_id(header.id, seq) for seq, entry in enumerate(old)}
    entries = tuple(
        move_entry(entry, header.id, seq, ids, _with_part(entry, ids))
        for seq, entry in enumerate(old)
    )
    return entries, ids


def _leaf(header: StreamHeader, leaf: EntryId | None) -> Entry:
    new = new_side(LeafMoved(leaf))
    seq = -1  # of no existing entry; it gets a new one like all others
    at = header.created_at
    return Entry(header.id, seq, "side", None, None, at, new.kind, new.v, new.body)


def _with_part(entry: Entry, ids: Mapping[EntryId, EntryId]) -> bytes:
    """Return the body of `entry` with the new seq of the ``import_source`` entry in ``source``.

    If `ids` does not contain the ``import_source`` entry, ``source`` is removed from the body.
    """
    source = source_of(entry.body)
    if source is None:
        return entry.body
    part = ids.get(entry_id(entry.stream, source.part))
    if part is None:
        return without_source(entry.body)
    moved = msgspec.structs.replace(source, part=entry_place(part)[1])
    return with_source(without_source(entry.body), moved)
