"""Search a store, and omit hits in labels that were removed or replaced.

The log keeps every label, so the search index also contains old labels.
"""

from __future__ import annotations

import msgspec

from perdure.session.entries import Entry
from perdure.session.fold import label_notes_of
from perdure.session.ids import StreamId
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
    by_stream: dict[StreamId, list[Entry]] = {}
    for note in await backend.notes_of_all((Label.kind,), streams):
        by_stream.setdefault(note.stream, []).append(note)
    kept = {note for each in by_stream.values() for note, _ in label_notes_of(each).values()}
    return [hit for hit in hits if hit.role != "label" or hit.entry in kept]
