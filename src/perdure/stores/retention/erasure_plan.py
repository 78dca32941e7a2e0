"""Plan the erasure of each stream.

The functions are pure. A generator asks for the data that it needs, such as the entries that a fork
can read, by yielding a question. A backend answers the questions of the generator, and executes the
plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from perdure.session.codec import ENTRY_NOTES
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.stores.protocol import StreamState
from perdure.stores.retention.cascade import (
    Reach,
    StreamErasure,
    VisibleEntries,
    reach_of,
    reach_of_entries,
    streams_to_read,
    takings,
)
from perdure.stores.retention.entries import CONTENT_NOTES, entry_erasures
from perdure.stores.retention.erase import ErasedSession, EraseRequest, Relation


class _Stated(Protocol):
    @property
    def state(self) -> StreamState: ...


S = TypeVar("S", bound=_Stated)

Question = tuple[StreamId, Sequence[str]]
"""A stream, and the kinds of its side entries that the plan needs."""

Erasures = Generator[Question, VisibleEntries, list[StreamErasure]]
"""A generator that yields questions, receives visible entries, and returns the erasures."""


@dataclass(frozen=True, slots=True)
class Plan(Generic[S]):
    """The erasure of one stream, its previous state, and the number and size of erased bodies."""

    stream: S
    taking: StreamErasure
    entries: int
    bytes: int

    @property
    def is_needed(self) -> bool:
        """Whether the erasure changes the stream."""
        before = self.stream.state
        is_new = self.taking.is_whole and before.info.status != "erased"
        return bool(self.entries) or is_new or self.taking.changes_list(before)

    def erased_session(self, hash_after: bytes) -> ErasedSession:
        """Return the certificate's line for the stream; `hash_after` is the new chain hash."""
        return self.taking.erased_session(
            self.stream.state, hash_after, entries=self.entries, body_bytes=self.bytes
        )


def roots_among(
    request: EraseRequest, headers: Iterable[tuple[StreamHeader, bool]]
) -> list[StreamId]:
    """Return the streams to erase for a `request` that names no session.

    `headers` has the header of every stream, and states whether the stream was erased.
    """
    return [
        header.id
        for header, is_erased in headers
        if request.scope == "namespace" or (header.subject == request.name and not is_erased)
    ]


def reach_among(
    request: EraseRequest, roots: Sequence[StreamId], relations: Collection[Relation]
) -> Reach:
    """Return the scope of `request`. Raises: SessionHasForks."""
    if request.scope == "entries":
        return reach_of_entries(roots[0], relations)
    return reach_of(roots, relations, request.fork_policy)


def erasures(
    request: EraseRequest,
    reach: Reach,
    relations: Collection[Relation],
    states: Mapping[StreamId, StreamState],
) -> Erasures:
    """Return the erasures of the streams in `reach`; `states` contains the states of its targets.

    Raises: the errors of `entry_erasures`.
    """
    seen: dict[StreamId, VisibleEntries] = {}
    everything = (*reach.targets, *reach.forks)
    if request.scope == "entries":
        for stream in everything:
            seen[stream] = yield stream, CONTENT_NOTES if stream in reach.targets else ENTRY_NOTES
        return entry_erasures(request, states[reach.targets[0]], reach, seen)
    heads = {stream: states[stream].head for stream in reach.targets}
    for wanted in (streams_to_read(reach, relations), everything):
        for stream in wanted:
            if stream not in seen:
                seen[stream] = yield stream, ENTRY_NOTES
        found = takings(reach, heads, relations, seen)
        if found is not None:
            return found
    return []


def planned(
    steps: Erasures, visible: Callable[[StreamId, Sequence[str]], VisibleEntries]
) -> list[StreamErasure]:
    """Run the generator `steps`; `visible` returns the entries for each of its questions."""
    try:
        question = next(steps)
        while True:
            question = steps.send(visible(*question))
    except StopIteration as end:
        return end.value
