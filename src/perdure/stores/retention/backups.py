"""Records of the backups of a store, so that the certificate of an erasure can name them."""

from __future__ import annotations

import msgspec


class Backup(msgspec.Struct, frozen=True):
    """A backup of the store. Units: `at` is Unix milliseconds."""

    path: str
    at: int
