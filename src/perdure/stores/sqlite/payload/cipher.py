"""Encryption of a database file: the cipher, and how an encrypted file is recognized.

SQLite3 Multiple Ciphers encrypts and authenticates every page of the database and of its journals.
The key is used unchanged, and is not derived from a password. A file starts with a random salt, and
eight bytes of its header stay readable. The key is passed only to the connection. If a statement
that contains the key fails, its error is replaced by an error without the key.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import apsw

from perdure.errors import StoreUnavailable
from perdure.stores.access.sqlite_connection import Connection
from perdure.stores.key import StoreKey

CIPHER = "aegis"
"""AEGIS-256.

Measured against ChaCha20-Poly1305, the driver's default: AEGIS-256 costs half for a commit and a
quarter for reading, on a processor with AES instructions (`docs/guides/encryption.md`).
"""

_PAYLOAD_FRACTIONS = slice(21, 24)
_FRACTIONS = b"\x40\x20\x20"
"""Header bytes that are the same in every SQLite database, and readable in an encrypted one."""


def unlock(db: Connection, key: StoreKey | None) -> None:
    """Make `db` read and write with `key`. `unlock` must be the first call on the connection."""
    if key is None:
        return
    db.pragma("cipher", CIPHER)
    failed = False
    try:
        db.pragma("key", "raw:" + key.reveal())
    except apsw.Error:
        failed = True
    if failed:  # outside the handler, so that no traceback leads to the statement
        raise StoreUnavailable("the database", "its driver did not take the key")


def looks_encrypted(header: bytes) -> bool:
    """Return whether a file with this `header` might be encrypted.

    The result is also True for an unencrypted database.
    """
    return header[_PAYLOAD_FRACTIONS] == _FRACTIONS


def cipher_of(key: StoreKey | None) -> str | None:
    """Return the name of the cipher of a store with `key`."""
    return None if key is None else "AEGIS-256"


def copy_into(db: Connection, target: Path, key: StoreKey | None) -> None:
    """Write the content of `db` into the empty file `target`, encrypted with `key` or plain.

    `db` must be opened with ``SQLITE_OPEN_URI``. Raises: apsw.Error, with a message that does not
    contain the key.
    """
    secret = f"cipher={CIPHER}&key=raw:{key.reveal()}" if key else "key="
    failure: type[apsw.Error] | None = None
    try:
        db.execute("VACUUM INTO ?", (f"file:{quote(str(target))}?{secret}",))
    except apsw.Error as error:
        failure = type(error)
    if failure is not None:
        raise failure("the copy could not be written")
