"""Results of maintenance operations that only some backends support."""

from __future__ import annotations

import msgspec

from perdure.stores.protocol import Problem

SOME_COMMITS = 200
"""Maximum number of commits that one call reads or writes while it copies a stream."""


class VacuumReport(msgspec.Struct, frozen=True):
    """The result of `MaintenanceService.vacuum`.

    Units: bytes. `blob_bytes` is the size of the removed contents. `freed_bytes` is the space that
    was returned to the file system. `keys` counts the deleted idempotency keys, which were older
    than ``retention.policy.KEY_WINDOW_MS``.
    """

    blobs: int
    blob_bytes: int
    freed_bytes: int
    keys: int = 0


class RepairReport(msgspec.Struct, frozen=True):
    """The result of a repair.

    Shape: `entries` counts the entries of the repaired store; `losses` lists the lost data, by
    stream and seq. `changed` are the sessions whose hashes changed because an entry is lost.
    `aside` is the folder with the damaged store and a report; None if the store was not moved.
    """

    store: str
    is_damaged: bool
    streams: int = 0
    entries: int = 0
    losses: tuple[Problem, ...] = ()
    changed: tuple[str, ...] = ()
    aside: str | None = None


class MigrationPlan(msgspec.Struct, frozen=True):
    """The migrations that bring a store to the schema of this program.

    Shape: `steps` are the purposes of the missing migrations; () if the store is up to date.
    """

    store: str
    current: int
    latest: int
    steps: tuple[str, ...]


def purpose(sql: str) -> str:
    """Return the purpose of a migration, which is its first line."""
    first = sql.partition("\n")[0].removeprefix("-- ")
    return first.partition(": ")[2] or first
