"""Side files of the session files: leases, partial answers, contents.

A lease and a partial answer are small files: each write replaces the whole file, under the
session's lock. The file of a content is written only once. The file has the content's hash as its
name, and is in one of 256 folders.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from perdure.errors import CorruptLog, LeaseLost, StoreUnavailable
from perdure.session.ids import StreamId, blob_hash
from perdure.stores.jsonl.disk.folder import Folder
from perdure.stores.protocol import EMPTY, Lease
from perdure.stores.regular_files import check_folder, read_regular, status_of

_DIGEST = re.compile(r"sha256-[0-9a-f]{64}")


class HeldLease(msgspec.Struct, frozen=True):
    """A session's lease. Units: `until` is Unix milliseconds."""

    owner: str = ""
    epoch: int = 0
    until: int = 0


T = TypeVar("T")

_held = msgspec.json.Decoder(HeldLease)
_place = msgspec.json.Decoder(tuple[int, int])


def lease_of(folder: Folder, stream: StreamId) -> HeldLease:
    """Return the session's lease; its epoch is 0 if no lease was ever acquired.

    Raises: StoreUnavailable if the lease's file cannot be read, because fencing would then fail.
    """
    content = folder.read_side("leases", stream)
    if content is None:
        return HeldLease()
    try:
        return _held.decode(content)
    except ValueError as error:
        path = folder.side("leases", stream)
        raise StoreUnavailable(
            str(path), "it is not a lease; remove it while no process uses the store"
        ) from error


def put_lease(folder: Folder, stream: StreamId, held: HeldLease) -> None:
    """Store `held` as the session's lease.

    Durable: the lease is as durable as the sessions of the store, so that no epoch is issued twice.
    """
    content = msgspec.json.encode(held)
    folder.replace("leases", stream, content, is_synced=folder.is_synced)


def check_lease(folder: Folder, lease: Lease) -> HeldLease:
    """Return the session's current lease if `lease` is still valid.

    Raises: LeaseLost.
    """
    held = lease_of(folder, lease.stream)
    if not 0 < lease.epoch == held.epoch:
        raise LeaseLost(lease.stream, lease.epoch, held.epoch)
    return held


def renew(folder: Folder, lease: Lease, until: int) -> Lease:
    """Extend the lease to `until` and return it. Raises: LeaseLost."""
    with folder.hold_lock("stream", lease.stream):
        held = check_lease(folder, lease)
        put_lease(folder, lease.stream, HeldLease(lease.owner, held.epoch, until))
    return msgspec.structs.replace(lease, until=until)


def release(folder: Folder, lease: Lease) -> None:
    """Release `lease`; do nothing if another owner has acquired it."""
    with folder.hold_lock("stream", lease.stream):
        held = lease_of(folder, lease.stream)
        if 0 < lease.epoch == held.epoch:
            put_lease(folder, lease.stream, msgspec.structs.replace(held, until=0))


def decoded_side(
    folder: Folder, kind: str, name: str, decoder: msgspec.json.Decoder[T]
) -> T | None:
    """Return the content of a side file; None if the file is missing.

    Raises: StoreUnavailable if the file is damaged, because the value is then unknown.
    """
    content = folder.read_side(kind, name)
    try:
        return None if content is None else decoder.decode(content)
    except ValueError as error:
        path = folder.side(kind, name)
        raise StoreUnavailable(str(path), f"it holds no {name}; remove it") from error


def put_partial(folder: Folder, stream: StreamId, turn: int, seq: int, content: bytes) -> None:
    """Store the received part of the answer to model call `seq`, in the turn that began at `turn`.

    Durable: the partial answer survives the end of the process.
    """
    place = msgspec.json.encode((turn, seq))
    folder.replace("partials", stream, place + b"\n" + content, is_synced=False)


def partial_of(folder: Folder, stream: StreamId, turn: int | None) -> tuple[int, bytes] | None:
    """Return the partial answer of the turn that began at `turn`, and the seq of its model call."""
    kept = folder.read_side("partials", stream)
    if kept is None or turn is None:
        return None
    place, _, content = kept.partition(b"\n")
    try:
        kept_turn, seq = _place.decode(place)
    except ValueError:
        return None
    return (seq, content) if kept_turn == turn else None


# ---------------------------------------------------------------- contents


def put_blob(folder: Folder, content: bytes) -> None:
    """Store `content` under its hash, unless a content with this hash is already stored.

    Durable: the content is as durable as the sessions of the store.
    """
    digest = blob_hash(content)
    path = _blob_path(folder, digest)
    try:
        status_of(path)
    except FileNotFoundError:
        folder.put(path, content, is_synced=folder.is_synced)
    except OSError as error:
        folder.fail(error)


def blob_of(folder: Folder, digest: str) -> bytes | None:
    """Return the content with the hash `digest`; None if the folder does not store it.

    Raises: CorruptLog if the content no longer matches its hash; StoreUnavailable.
    """
    if not _DIGEST.fullmatch(digest):
        return None
    try:
        path = _blob_path(folder, digest)
        check_folder(path.parent)
        content = read_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        folder.fail(error)
    if blob_hash(content) != digest:
        raise CorruptLog(digest, EMPTY, "its content is not what its name says")
    return content


def blobs_in(folder: Folder) -> Iterator[Path]:
    """Yield the file of every content; the file's name is the content's hash."""
    for path in sorted((folder.inner / "blobs").glob("*/sha256-*")):
        if _DIGEST.fullmatch(path.name) and not path.parent.is_symlink():
            yield path


def _blob_path(folder: Folder, digest: str) -> Path:
    shard = digest.removeprefix("sha256-")[:2]
    return folder.inner / "blobs" / shard / digest
