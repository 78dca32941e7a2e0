"""Find the facts that an erasure also erases, because their sources are erased.

The functions are pure. A version of a fact is erased if all its sources are erased. The fact is
erased if its newest version is erased. A fact with a remaining source loses only the erased
sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.session.codec import new_side, readable
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import EntryId, StreamId, place_of
from perdure.session.memory.facts import StoredFact, stored_facts
from perdure.session.memory.kinds import FactSourcesErased
from perdure.stores.retention.cascade import StreamErasure
from perdure.stores.retention.erase import Range, in_ranges


def fact_erasures(taken: Sequence[StreamErasure], notes: Iterable[Entry]) -> list[StreamErasure]:
    """Return the erasures in the streams of facts that follow from the erasures `taken`.

    `notes` are all entries of the kinds ``FACT_KINDS``, each from the log of its own stream, in
    order.
    """
    erased = {each.stream: each.erased for each in taken if each.erased}
    streams: dict[StreamId, list[Entry]] = {}
    for note in notes:
        if note.stream not in erased:
            streams.setdefault(note.stream, []).append(note)
    found = [_erasure(stream, entries, erased) for stream, entries in streams.items()]
    return [each for each in found if each.erased or each.notes]


def _erasure(
    stream: StreamId, entries: Sequence[Entry], erased: dict[StreamId, tuple[Range, ...]]
) -> StreamErasure:
    seqs: list[int] = []
    notes: list[NewEntry] = []
    for fact in stored_facts((entry, readable(entry)) for entry in entries).values():
        lost = _lost(fact, erased)
        gone = [each for each in fact.versions if each.sources and lost.issuperset(each.sources)]
        if fact.versions[-1] in gone:
            seqs += fact.entries
            continue
        seqs += [each.entry.seq for each in gone]
        if lost:
            notes.append(new_side(FactSourcesErased(tuple(sorted(lost))), fact.id))
    return StreamErasure(
        stream=stream, is_whole=False, erased=in_ranges(sorted(seqs)), notes=tuple(notes)
    )


def _lost(fact: StoredFact, erased: dict[StreamId, tuple[Range, ...]]) -> set[EntryId]:
    found: set[EntryId] = set()
    for source in {source for version in fact.versions for source in version.sources}:
        # Only a damaged or forged entry names something else than an entry.
        stream, seq = place_of(source) or (StreamId(""), -1)
        if any(first <= seq <= last for first, last in erased.get(stream, ())):
            found.add(source)
    return found
