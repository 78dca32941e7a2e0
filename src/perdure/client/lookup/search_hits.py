"""Search a store, and omit hits in labels that were removed or replaced.

The log keeps every label, so the search index also contains old labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.session.entries import Entry
from perdure.session.fold import label_notes_of
from perdure.session.ids import EntryId, StreamId
from perdure.session.notes import Label
from perdure.session.search.values import Hit, SearchQuery
from perdure.stores.protocol import OnProgress
from perdure.stores.session_store import SessionStore


async def hits_in_force(
    backend: SessionStore, query: SearchQuery, on_progress: OnProgress | None = None
) -> list[Hit]:
    """Return the hits of ``SearchService.hits``, without hits in removed or replaced labels.

    Repeats the search with twice the limit if old labels leave fewer hits than the limit.
    """
    asked = query
    while True:
        found = await backend.search.hits(asked, on_progress)
        hits = await _without_old_labels(backend, found)
        if len(hits) >= query.limit or len(found) < asked.limit:
            return hits[: query.limit]
        asked = msgspec.structs.replace(asked, limit=2 * asked.limit)


async def _without_old_labels(backend: SessionStore, hits: list[Hit]) -> list[Hit]:
    streams = list(dict.fromkeys(hit.stream for hit in hits if hit.role == "label"))
    if not streams:
        return hits
    kept = _labels_in_force(await backend.notes_of_all((Label.kind,), streams))
    return [hit for hit in hits if hit.role != "label" or hit.entry in kept]


def _labels_in_force(notes: Sequence[Entry]) -> set[EntryId]:
    """Return the ids of the label entries in `notes` that were not removed or replaced later."""
    by_stream: dict[StreamId, list[Entry]] = {}
    for note in notes:
        by_stream.setdefault(note.stream, []).append(note)
    return {note for each in by_stream.values() for note, _ in label_notes_of(each).values()}
