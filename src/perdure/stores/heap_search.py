"""The words of a store in memory, as a search reads them."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.stores.heap import Heap, is_on_branch
from perdure.stores.scanning import Found, found_entry, found_title


def texts_in(heap: Heap) -> Iterator[Found]:
    """Everything that can be found, the newest entry first and then the titles."""
    for position in range(len(heap.log), 0, -1):
        entry = heap.log[position - 1]
        if entry is not None and heap.streams[entry.stream].state.header.kind == "session":
            found = found_entry(position, entry)
            if found is not None:
                yield found
    for number, held in enumerate(heap.streams.values(), 1):
        found = found_title(number, held.state.header)
        if found is not None:
            yield found


def is_shown(heap: Heap, found: Found) -> bool:
    """Whether `found` is on the branch that its session shows."""
    target = found.target
    return target is None or is_on_branch(heap, target, heap.streams[found.stream].state.leaf)
