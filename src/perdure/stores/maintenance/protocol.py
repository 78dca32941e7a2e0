"""What some backends do for a store as a whole besides keeping it: values and protocols."""

from __future__ import annotations

import msgspec


class VacuumReport(msgspec.Struct, frozen=True):
    """What `VacuumService.vacuum` did.

    Units: `blob_bytes` are those of the contents removed, `freed_bytes` of the file given back.
    `keys` are idempotency keys older than ``keeping.retention.KEY_WINDOW_MS``, which are forgotten.
    """

    blobs: int
    blob_bytes: int
    freed_bytes: int
    keys: int = 0


class MigrationPlan(msgspec.Struct, frozen=True):
    """How a store comes to the schema of this program.

    Shape: `steps` say what each missing migration is for; () when the store is up to date.
    """

    store: str
    current: int
    latest: int
    steps: tuple[str, ...]


def purpose(sql: str) -> str:
    """What a migration is for: its first line says so."""
    first = sql.partition("\n")[0].removeprefix("-- ")
    return first.partition(": ")[2] or first
