"""The texts of a store in memory, as a search reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.stores.in_memory.streams import Heap, is_on_branch
from perdure.stores.scan import Found, found_entry, found_title


def texts_in(heap: Heap) -> Iterator[Found]:
    """Yield all searchable texts, the newest entry first and then the titles.

    Shape: another thread may iterate while `heap` changes.
    """
    headers = {stream: held.state.header for stream, held in heap.streams.items()}
    return _texts(tuple(heap.log), headers)


def _texts(
    log: Sequence[Entry | None], headers: Mapping[StreamId, StreamHeader]
) -> Iterator[Found]:
    for position in range(len(log), 0, -1):
        entry = log[position - 1]
        header = None if entry is None else headers[entry.stream]
        if entry is not None and header is not None and header.kind == "session":
            found = found_entry(position, entry, header.subject)
            if found is not None:
                yield found
    for number, header in enumerate(headers.values(), 1):
        found = found_title(number, header)
        if found is not None:
            yield found


def text_at(heap: Heap, position: int) -> Found | None:
    """Return the text of the entry at `position`; None if it was erased."""
    entry = heap.log[position - 1]
    held = None if entry is None else heap.streams.get(entry.stream)
    if entry is None or held is None:
        return None
    return found_entry(position, entry, held.state.header.subject)


def is_there(heap: Heap, found: Found) -> bool:
    """Return whether `found` was not erased since it was read."""
    if found.stream not in heap.streams:
        return False
    entry = None if found.entry is None else heap.log[found.position - 1]
    return found.entry is None or (entry is not None and not entry.is_erased)


def is_shown(heap: Heap, found: Found) -> bool:
    """Return whether `found` is on the branch that its session shows."""
    target = found.target
    return target is None or is_on_branch(heap, target, heap.streams[found.stream].state.leaf)
