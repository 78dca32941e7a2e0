"""Which backups were made of a store, so that the certificate of an erasure can name them."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import msgspec


class Backup(msgspec.Struct, frozen=True):
    """A backup that was made. Units: `at` is Unix milliseconds."""

    path: str
    at: int


@runtime_checkable
class BackupRegistry(Protocol):
    """A store that remembers its backups."""

    async def remember_backup(self, backup: Backup) -> None:
        """Keep that `backup` was made; a later one at the same place takes its place.

        Durable: on return.
        """
        ...

    async def backups(self) -> list[Backup]:
        """The backups that were made, the oldest first. Some may be gone: nobody says so."""
        ...
