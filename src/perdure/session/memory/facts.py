"""Fold the entries of a memory stream into facts.

The text of a fact is its newest version; older versions are its history. A version is erased when
all its sources are erased, and a fact is erased when its newest version is erased.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from perdure.bounds.short_repr import ShortRepr
from perdure.session.entries import Entry
from perdure.session.ids import EntryId
from perdure.session.memory.kinds import (
    FactCorrected,
    FactForgotten,
    FactRemembered,
    FactSourcesErased,
    FactsReceived,
    SaidBy,
)


class FactVersion(ShortRepr, frozen=True, kw_only=True):
    """The text of a fact before a correction. Units: Unix milliseconds."""

    text: str
    sources: tuple[EntryId, ...]
    said_by: SaidBy
    valid_from: int | None
    valid_to: int | None
    at: int


class Fact(ShortRepr, frozen=True, kw_only=True):
    """Something an agent remembers about `subject`.

    Shape: `sources` are the entries that the fact comes from. `agent` is None if the fact is for
    any agent of the subject. `history` are the earlier versions, oldest first.
    Units: Unix milliseconds. `at` is the time of the newest version. `valid_from` and `valid_to`
    limit the time in which the fact is true; None means no limit. `is_received` is True if the
    newest version was read from a file.
    """

    id: EntryId
    text: str
    subject: str | None
    agent: str | None
    sources: tuple[EntryId, ...]
    said_by: SaidBy
    valid_from: int | None
    valid_to: int | None
    at: int
    history: tuple[FactVersion, ...] = ()
    is_received: bool = False

    @property
    def cursor(self) -> str:
        """Return the fact's position in a newest-first list, for ``Memory.facts(after=…)``."""
        return f"{self.at}:{self.id}"

    def is_valid_at(self, moment: int) -> bool:
        """Return whether the fact is true at `moment`. Units: Unix milliseconds."""
        is_begun = self.valid_from is None or self.valid_from <= moment
        return is_begun and (self.valid_to is None or moment < self.valid_to)


class StoredVersion(msgspec.Struct, frozen=True):
    """A version and its entry; `sources` are those sources of the version that were not erased."""

    entry: Entry
    body: FactRemembered | FactCorrected
    sources: tuple[EntryId, ...]
    is_received: bool = False


class StoredFact(msgspec.Struct, frozen=True):
    """A fact as it is stored: its versions that were not erased, oldest first."""

    id: EntryId
    versions: tuple[StoredVersion, ...]

    @property
    def entries(self) -> tuple[int, ...]:
        """Return the seqs of the entries that contain the fact's versions."""
        return tuple(version.entry.seq for version in self.versions)


def stored_facts(entries: Iterable[tuple[Entry, object]]) -> dict[EntryId, StoredFact]:
    """Return the facts of one memory stream by id, in the order in which they were remembered.

    `entries` has the entries of ``FACT_KINDS`` with their bodies, in order. Forgotten and erased
    facts are omitted.
    """
    versions: dict[EntryId, list[StoredVersion]] = {}
    gone: set[EntryId] = set()
    received: list[range] = []
    for entry, body in entries:
        if isinstance(body, FactsReceived):
            received.append(range(entry.seq - body.count, entry.seq))
        fact = entry.id if entry.kind == FactRemembered.kind else entry.about
        if fact is None:
            continue
        match body:
            case FactRemembered() | FactCorrected():
                versions.setdefault(fact, []).append(StoredVersion(entry, body, body.sources))
            case FactForgotten():
                gone.add(fact)
            case FactSourcesErased():
                lost = frozenset(body.sources)
                versions[fact] = [_without(each, lost) for each in versions.get(fact, ())]
            case _:
                pass
    return {
        fact: StoredFact(fact, tuple(_marked(each, received) for each in found))
        for fact, found in versions.items()
        if fact not in gone and found
    }


def _marked(version: StoredVersion, received: Sequence[range]) -> StoredVersion:
    is_received = any(version.entry.seq in each for each in received)
    return msgspec.structs.replace(version, is_received=True) if is_received else version


def _without(version: StoredVersion, lost: frozenset[EntryId]) -> StoredVersion:
    left = tuple(source for source in version.sources if source not in lost)
    return msgspec.structs.replace(version, sources=left)


def fact_of(stored: StoredFact, subject: str | None) -> Fact:
    """Return `stored` as a fact about `subject`."""
    newest = stored.versions[-1]
    return Fact(
        id=stored.id,
        text=newest.body.text,
        subject=subject,
        agent=newest.body.agent,
        sources=newest.sources,
        said_by=newest.body.said_by,
        valid_from=newest.body.valid_from,
        valid_to=newest.body.valid_to,
        at=newest.entry.at,
        is_received=newest.is_received,
        history=tuple(
            FactVersion(
                text=each.body.text,
                sources=each.sources,
                said_by=each.body.said_by,
                valid_from=each.body.valid_from,
                valid_to=each.body.valid_to,
                at=each.entry.at,
            )
            for each in stored.versions[:-1]
        ),
    )
