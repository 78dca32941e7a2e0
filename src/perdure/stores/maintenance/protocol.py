"""Results of maintenance operations that only some backends support."""

from __future__ import annotations

import msgspec


class VacuumReport(msgspec.Struct, frozen=True):
    """The result of `MaintenanceService.vacuum`.

    Units: `blob_bytes` of the contents removed, `freed_bytes` returned to the file system.
    `keys` counts the deleted idempotency keys, older than ``retention.policy.KEY_WINDOW_MS``.
    """

    blobs: int
    blob_bytes: int
    freed_bytes: int
    keys: int = 0


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
