"""Export facts to files and import them. A file of facts has perdure's own session format.

A file of facts contains the facts of one subject with their histories, but no forgotten facts. An
import appends the facts and corrections that are missing in this store. Facts that were forgotten
in this store stay forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from perdure.bounds.limits import require_within
from perdure.errors import FormatError, SessionNotFound, Unsupported
from perdure.interop.append_items import after_conflicts
from perdure.interop.formats import native
from perdure.interop.formats.native import Bundle, move_entry
from perdure.interop.formats.sources.content import Content
from perdure.interop.reports import ImportReport, Lost, still_erased
from perdure.session.clock import Clock
from perdure.session.codec import new_side, readable
from perdure.session.entries import Entry, NewEntry, Sibling
from perdure.session.ids import EntryId, entry_id
from perdure.session.info import StreamHeader
from perdure.session.memory.facts import StoredFact, StoredVersion, stored_facts
from perdure.session.memory.kinds import (
    FACT_TEXTS,
    FactRemembered,
    FactSourcesErased,
    FactsReceived,
    memory_stream,
)
from perdure.stores.protocol import EMPTY, Commit, Write
from perdure.stores.session_store import SessionStore

_KEPT = (*FACT_TEXTS, FactSourcesErased.kind)
"""Kinds of the entries that a file of facts can contain."""


def facts_bundle(bundle: Bundle) -> Bundle:
    """Return the memory stream in `bundle` with only the entries of its facts, renumbered."""
    stream = bundle.header.id
    facts = stored_facts((entry, readable(entry)) for entry in bundle.entries)
    kept = [
        entry
        for entry in bundle.entries
        if entry.kind in _KEPT and not entry.is_erased and (entry.about or entry.id) in facts
    ]
    ids = {entry.id: entry_id(stream, seq) for seq, entry in enumerate(kept)}
    moved = tuple(move_entry(entry, stream, seq, ids) for seq, entry in enumerate(kept))
    return Bundle(bundle.header, moved, {}, ())


async def import_facts(
    store: SessionStore, content: Content, *, subject: str | None, clock: Clock
) -> ImportReport:
    """Append the facts of the file `content` that are missing in this store.

    The imported facts are about `subject`, or by default about the subject of the file.
    Durable: all facts are stored in one commit when the call returns.
    Raises: FormatError if the file is damaged or contains other entries. Raises Unsupported in a
    store of session files. Other errors are those of ``SessionStore.commit``.
    """
    if not store.capabilities.erase:
        raise Unsupported("facts", store.address.partition(":")[0])
    require_within("import_file_bytes", content.length, content.name)
    whole = content.read(0, content.length)
    bundle = await asyncio.to_thread(native.parse, whole, content.name)
    _check(bundle, content.name)
    subject = bundle.header.subject if subject is None else subject
    stream = memory_stream(subject)
    header = msgspec.structs.replace(bundle.header, id=stream, subject=subject, received=0)
    return await after_conflicts(lambda: _append(store, bundle, header, clock.now_ms()))


def _check(bundle: Bundle, name: str) -> None:
    """Raise FormatError unless `bundle` contains facts only."""
    if bundle.header.id != memory_stream(bundle.header.subject):
        raise FormatError(name, "its facts are not those of the subject that it names")
    ids = {entry.id for entry in bundle.entries if entry.kind == FactRemembered.kind}
    for entry in bundle.entries:
        is_fact = entry.kind in _KEPT and entry.lane == "side"
        is_about = entry.about is None if entry.kind == FactRemembered.kind else entry.about in ids
        if not is_fact or not is_about or entry.is_erased:
            raise FormatError(name, f"entry {entry.seq} is no entry of a fact ({entry.kind})")


async def _append(
    store: SessionStore, bundle: Bundle, header: StreamHeader, at: int
) -> ImportReport:
    """Append the new entries of `bundle` to the stream of `header`."""
    create, here = header, list[Entry]()
    try:
        state = await store.state(header.id)
        if state.info.status == "erased":
            return still_erased(Lost(header.id), native.FORMAT)
        create, here = None, await store.entries(header.id)
    except SessionNotFound:
        state = None
    new, forgotten = _new_in(bundle, here)
    warnings = (f"{forgotten} facts were forgotten here, and stay so",) if forgotten else ()
    report = ImportReport(
        session=header.id,
        format="facts",
        entries=len(new),
        messages=0,
        skipped=0,
        malformed=(),
        warnings=warnings,
        is_new=state is None,
    )
    if not new and state is not None:
        return report
    received = (new_side(FactsReceived(len(new))),) if new else ()
    write = Write(
        stream=header.id,
        entries=(*new, *received),
        is_received=True,
        create=create,
        expected_head=None if state is None else state.head if state.head >= 0 else EMPTY,
    )
    await store.commit(Commit(writes=(write,), at=at))
    return report


def _new_in(bundle: Bundle, here: Sequence[Entry]) -> tuple[tuple[NewEntry, ...], int]:
    """Return the entries to append for the facts of `bundle` that the store lacks.

    `here` are the entries in the store. The second value is the number of facts in `bundle` that
    were forgotten in this store.
    """
    known: dict[object, EntryId] = {}
    for fact in stored_facts((entry, readable(entry)) for entry in here).values():
        for count in range(1, len(fact.versions) + 1):
            known.setdefault(_said(fact.versions[:count]), fact.id)
    gone = {entry.at for entry in here if entry.is_erased and entry.kind == FactRemembered.kind}
    wanted: dict[EntryId, EntryId | None] = {}
    first_new: dict[EntryId, int] = {}
    forgotten = 0
    for fact in stored_facts((entry, readable(entry)) for entry in bundle.entries).values():
        count = _known_versions(fact, known)
        if count == 0 and fact.versions[0].entry.at in gone:
            forgotten += 1
        elif count < len(fact.versions):
            wanted[fact.id] = known[_said(fact.versions[:count])] if count else None
            first_new[fact.id] = fact.versions[count].entry.seq
    added: list[NewEntry] = []
    places: dict[EntryId, Sibling | EntryId] = {
        fact: there for fact, there in wanted.items() if there is not None
    }
    for entry in bundle.entries:
        fact = entry.about or entry.id
        if fact not in wanted or entry.seq < first_new[fact]:
            continue
        about = None if entry.about is None else places[fact]
        places.setdefault(entry.id, Sibling(len(added)))
        added.append(
            NewEntry(
                kind=entry.kind, body=entry.body, v=entry.v, lane="side", about=about, at=entry.at
            )
        )
    return tuple(added), forgotten


def _known_versions(fact: StoredFact, known: dict[object, EntryId]) -> int:
    """Return how many versions of `fact`, counted from the first, are already in the store.

    The keys of `known` describe the versions in the store.
    """
    counts = range(len(fact.versions), 0, -1)
    return next((count for count in counts if _said(fact.versions[:count]) in known), 0)


def _said(versions: Sequence[StoredVersion]) -> tuple[object, ...]:
    """Return the content of `versions` in a form that can be compared."""
    bodies = (version.body for version in versions)
    return tuple((b.text, b.agent, b.said_by, b.valid_from, b.valid_to) for b in bodies)
