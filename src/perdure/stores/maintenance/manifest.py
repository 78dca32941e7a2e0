"""What a backup says of itself: which file, how large, under which hash, and what is in it.

The manifest is plain also where the backup is encrypted, so it names no session and no namespace.
Pure but for `hash_of`, which reads the file it is given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from perdure.errors import BackupDamaged
from perdure.stores.maintenance.segments import SegmentState
from perdure.stores.regular_files import open_to_read, read_regular, status_of

FORMAT = 1
STORE_NAME = "store.sqlite"
MANIFEST_NAME = "manifest.json"

MOST_BYTES = 2**16
"""Of a manifest that are read; ours have 500."""

_CHUNK_BYTES = 2**20


class Manifest(msgspec.Struct, frozen=True):
    """A backup in a folder: `STORE_NAME` and this, as `MANIFEST_NAME`.

    Units: `created_at` is Unix milliseconds. Shape: `sha256` is of the file, `heads` of where every
    stream stands (`heads_of`), hexadecimal both. `backend` is what was backed up; the backup itself
    is an SQLite store whatever it was.
    """

    format: int
    created_at: int
    perdure: str
    backend: str
    schema: int
    is_encrypted: bool
    bytes: int
    sha256: str
    namespaces: int
    streams: int
    entries: int
    heads: str


def encode_manifest(manifest: Manifest) -> bytes:
    """`manifest` as it is written."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def read_manifest(folder: Path) -> Manifest:
    """What the backup in `folder` says of itself.

    Raises: BackupDamaged when there is none, or none that can be read.
    """
    try:
        content = read_regular(folder / MANIFEST_NAME, most_bytes=MOST_BYTES)
    except OSError as error:
        reason = f"it has no {MANIFEST_NAME} that can be read ({error.strerror})"
        raise BackupDamaged(str(folder), reason) from error
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BackupDamaged(str(folder), f"its {MANIFEST_NAME} is damaged") from error
    if manifest.format > FORMAT:
        raise BackupDamaged(str(folder), "a newer perdure made it; upgrade this one")
    return manifest


def check_file(folder: Path, manifest: Manifest) -> None:
    """Compare the backup's file with its manifest. Raises: BackupDamaged."""
    path = folder / STORE_NAME
    try:
        size = status_of(path).st_size
        digest = hash_of(path)[1] if size == manifest.bytes else ""
    except OSError as error:
        reason = f"its {STORE_NAME} cannot be read ({error.strerror})"
        raise BackupDamaged(str(folder), reason) from error
    if size != manifest.bytes:
        reason = f"its {STORE_NAME} has {size} bytes, {manifest.bytes} were written"
        raise BackupDamaged(str(folder), reason)
    if digest != manifest.sha256:
        raise BackupDamaged(str(folder), f"its {STORE_NAME} does not have the hash it had")


def hash_of(path: Path) -> tuple[int, str]:
    """Size and SHA-256 of a file. Blocks."""
    digest, size = hashlib.sha256(), 0
    with open_to_read(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


def heads_of(standings: Iterable[tuple[str, SegmentState]]) -> str:
    """One hash over where every stream of every namespace stands."""
    digest = hashlib.blake2b(digest_size=32, person=b"perdure-heads")
    lines = [
        f"{namespace}\n{standing.stream} {standing.head} {standing.hash.hex()}\n"
        for namespace, standing in standings
    ]
    for line in sorted(lines):
        digest.update(line.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
