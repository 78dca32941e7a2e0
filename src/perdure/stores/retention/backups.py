"""Which backups were made of a store, so that the certificate of an erasure can name them."""

from __future__ import annotations

import msgspec


class Backup(msgspec.Struct, frozen=True):
    """A backup that was made. Units: `at` is Unix milliseconds."""

    path: str
    at: int
