"""Limits of the work that workers share: turns at once, requests a minute, turns that wait.

A limit has a subject: ``namespace:NAME``, ``model:PROVIDER:NAME`` or ``provider:NAME``. The store
has it, so all workers of a database apply the same ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from perdure.bounds.short_repr import short_repr

KINDS = ("namespace", "model", "provider")
"""What comes before the first colon of a subject."""


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """What may be done of the work of `subject`; None: no limit.

    `turns` run at once. `per_minute` is the number of requests to models, at even distances.
    `waiting` turns of a namespace may wait for workers; further ones are refused.
    """

    __repr__ = short_repr

    subject: str
    turns: int | None = None
    per_minute: int | None = None
    waiting: int | None = None


class LimitInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A limit and what is done under it. `held` turns wait for the end of one of `running`.

    Units: seconds; `oldest_s` that the oldest of `held` has waited, `next_request_s` until the next
    request to a model may be sent.
    """

    __repr__ = short_repr

    limit: Limit
    running: int
    held: int
    oldest_s: float | None
    next_request_s: float


class Slot(msgspec.Struct, frozen=True):
    """A turn of the namespace that a worker runs, or will run once its slot is granted.

    One that is `running` is granted whatever the limits say: it began before they were set. Of the
    others of a namespace, those of the lowest `rank` are granted first.
    Shape: `id` is `slot_id` of its worker and work; `subjects` are as of `subjects_of`; `rank` is
    one of `RANKS`.
    """

    id: str
    namespace: str
    subjects: tuple[str, ...]
    running: bool
    rank: int = 0


def slot_id(worker: str, work: str) -> str:
    """Return the id of the slot of a piece of work in a worker. It tells neither."""
    return hashlib.sha256((worker + work).encode()).hexdigest()


def subjects_of(namespace: str, model: str | None) -> tuple[str, ...]:
    """Return the subjects of a turn or request: namespace, model, provider.

    Without a model, that of its namespace only.
    """
    if model is None:
        return (f"namespace:{namespace}",)
    return (f"namespace:{namespace}", f"model:{model}", f"provider:{model.partition(':')[0]}")


class LimitService(Protocol):
    """The limits of a database, and what is done under them."""

    async def limits(self) -> Sequence[Limit]:
        """Return the limits as they were set a second ago at most."""
        ...

    async def set_limit(self, limit: Limit) -> None:
        """Replace the limit of its subject; remove it if it has no number. Durable: on return."""
        ...

    async def infos(self) -> Sequence[LimitInfo]:
        """Return every limit with what is done under it, by subject."""
        ...

    async def sync_slots(self, worker: str, slots: Sequence[Slot]) -> set[str]:
        """Have `slots`, and no others, be those of `worker`; return the ids of granted ones."""
        ...

    async def permit_request(self, subjects: Iterable[str]) -> float:
        """Permit a request to a model if the limits of all `subjects` allow one now.

        Units: returns 0 if so, else the seconds after which they might.
        """
        ...

    def room(self) -> AbstractAsyncContextManager[str | None]:
        """Return a context in which one turn of the store's namespace may be requested.

        The turn counts as waiting from here on. The value is the idempotency key with which its
        request must be committed, None without a limit.
        Raises: QueueFull, on entry, if as many turns wait as may.
        """
        ...
