"""Limits of shared work: concurrent turns, requests per minute, waiting turns.

The subject of a limit is ``namespace:NAME``, ``model:PROVIDER:NAME`` or ``provider:NAME``. Limits
are in the store, so all workers of a database apply the same limits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from perdure.bounds.short_repr import short_repr

KINDS = ("namespace", "model", "provider")
"""The kinds of subjects; the kind comes before the first colon of a subject."""


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """The limits for the work of `subject`. A field that is None sets no limit.

    At most `turns` turns run at the same time. At most `per_minute` requests to models are
    permitted, spaced evenly. At most `waiting` turns of a namespace can wait for workers; further
    turns are rejected.
    """

    __repr__ = short_repr

    subject: str
    turns: int | None = None
    per_minute: int | None = None
    waiting: int | None = None


class LimitInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A limit and its current use. `held` turns wait until one of the `running` turns ends.

    Units: seconds. `oldest_s` is the waiting time of the oldest `held` turn. `next_request_s` is
    the time until the next request to a model is allowed.
    """

    __repr__ = short_repr

    limit: Limit
    running: int
    held: int
    oldest_s: float | None
    next_request_s: float


class Slot(msgspec.Struct, frozen=True):
    """A turn of the namespace that a worker runs, or will run as soon as its slot is granted.

    A slot that is `running` is granted regardless of the limits, because its turn began before the
    limits were set. Among the slots that are not `running`, those with the lowest `rank` are
    granted first in each namespace.
    Shape: `id` is the `slot_id` of the slot's worker and work; `subjects` are from `subjects_of`;
    `rank` is one of `RANKS`.
    """

    id: str
    namespace: str
    subjects: tuple[str, ...]
    running: bool
    rank: int = 0


def slot_id(worker: str, work: str) -> str:
    """Return the id of a slot, which is a hash and reveals neither the worker nor its work."""
    return hashlib.sha256((worker + work).encode()).hexdigest()


def subjects_of(namespace: str, model: str | None) -> tuple[str, ...]:
    """Return the subjects of a turn or request: namespace, model, provider.

    Without a model, return the subject of the namespace only.
    """
    if model is None:
        return (f"namespace:{namespace}",)
    return (f"namespace:{namespace}", f"model:{model}", f"provider:{model.partition(':')[0]}")


class LimitService(Protocol):
    """Sets the limits of a database, and applies them to turns and requests."""

    async def limits(self) -> Sequence[Limit]:
        """Return the limits; the result is at most one second old."""
        ...

    async def set_limit(self, limit: Limit) -> None:
        """Replace the limit of the subject in `limit`; remove the limit if `limit` sets no number.

        Durable: the limit is stored when the call returns.
        """
        ...

    async def infos(self) -> Sequence[LimitInfo]:
        """Return every limit and its current use, sorted by subject."""
        ...

    async def sync_slots(self, worker: str, slots: Sequence[Slot]) -> set[str]:
        """Replace the slots of `worker` with `slots`; return the ids of the granted slots."""
        ...

    async def permit_request(self, subjects: Iterable[str]) -> float:
        """Permit a request to a model if the limits of all `subjects` allow a request now.

        Units: the result is 0 if the request is permitted, otherwise the seconds to wait before the
        next try.
        """
        ...

    async def has_worker(self) -> bool:
        """Return whether a worker of the store's namespace has reported in the last seconds."""
        ...

    def room(self) -> AbstractAsyncContextManager[str | None]:
        """Return a context in which one turn of the store's namespace can be requested.

        The turn counts as waiting as soon as the context is entered. The context yields the
        idempotency key that the commit of the request must use. If the waiting turns have no limit,
        the context yields None.
        Raises: QueueFull, when the context is entered, if the maximum number of turns is waiting.
        """
        ...
