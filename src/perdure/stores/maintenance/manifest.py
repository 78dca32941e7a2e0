"""The manifest of a backup: size and hash of its file, and a summary of its content.

The manifest is plain text even if the backup is encrypted, so it contains no session name and no
namespace name. `hash_of`, `check_file` and `read_manifest` read files; the other functions are
pure.
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
"""Maximum size of a manifest that is read; perdure's manifests have about 500 bytes."""

_CHUNK_BYTES = 2**20


class Manifest(msgspec.Struct, frozen=True):
    """The file `MANIFEST_NAME` of a backup folder, next to the file `STORE_NAME`.

    Units: `created_at` is Unix milliseconds. Shape: `sha256` is the hash of the backup's file.
    `heads` is the hash of all stream states (`heads_of`). `sha256` and `heads` are hexadecimal.
    `backend` is the backend of the source; the backup itself is always an SQLite store.
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
    """Encode `manifest` as JSON."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of the backup in `folder`.

    Raises: BackupDamaged if the manifest is missing or cannot be read.
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
    """Return the size and the SHA-256 hash of a file. The call blocks."""
    digest, size = hashlib.sha256(), 0
    with open_to_read(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


def heads_of(standings: Iterable[tuple[str, SegmentState]]) -> str:
    """Return one hash over the states of all streams in all namespaces."""
    digest = hashlib.blake2b(digest_size=32, person=b"perdure-heads")
    lines = [
        f"{namespace}\n{standing.stream} {standing.head} {standing.hash.hex()}\n"
        for namespace, standing in standings
    ]
    for line in sorted(lines):
        digest.update(line.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
