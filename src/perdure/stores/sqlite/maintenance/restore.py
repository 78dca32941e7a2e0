"""Restore a backup: copy it next to its target, check it, and rename it in one step."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from perdure.errors import BackupDamaged, NotAStore, PerdureError, StoreExists, StoreTooOld
from perdure.stores.key import StoreKey
from perdure.stores.maintenance.manifest import STORE_NAME, Manifest, heads_of
from perdure.stores.regular_files import open_to_read
from perdure.stores.sqlite.connections import locate_site, open_site
from perdure.stores.sqlite.files.leftovers import unfinished_restore
from perdure.stores.sqlite.maintenance.backup import Content, check_sound
from perdure.stores.sqlite.maintenance.file_swap import (
    Report,
    exchange,
    free_name,
    new_file,
    put_where_nothing_is,
)
from perdure.stores.sqlite.rekey_copy import remove_with_logs

_CHUNK_BYTES = 2**20
_EARLIER = "-restored"


def earlier_store(path: Path) -> Path:
    """Return the path where a restored store of an earlier moment is built before it is renamed."""
    return path.with_name(path.name + _EARLIER)


def fetch(folder: Path, path: Path, report: Report) -> Path:
    """Copy the backup in `folder` to the folder of `path`. The call blocks. Raises: OSError."""
    copy = unfinished_restore(path)
    remove_with_logs(copy)
    new_file(copy)
    source = folder / STORE_NAME
    with open_to_read(source) as reading, copy.open("r+b") as writing:
        done, total = 0, os.fstat(reading.fileno()).st_size
        while done < total and (chunk := reading.read(_CHUNK_BYTES)):
            writing.write(chunk)
            done += len(chunk)
            report(done, total)
        writing.flush()
        os.fsync(writing.fileno())
    return copy


def check_fetched(copy: Path, folder: Path, manifest: Manifest, key: StoreKey | None) -> None:
    """Migrate the copy to this program's schema, and check that it matches the backup.

    The call blocks. Raises: BackupDamaged if the copy does not match the backup. The call raises
    KeyMissing, KeyWrong, StoreTooNew or StoreTooOld if the copy cannot be opened.
    """
    try:
        Content(copy, key).close()  # check the key before writing anything
        open_site(copy, seed=lambda: os.urandom(16), key=key)
    except StoreTooOld as error:
        source, can_be_copied = folder / STORE_NAME, error.can_be_copied
        raise StoreTooOld(
            str(source), error.version, error.first, can_be_copied=can_be_copied
        ) from error
    with closing(Content(copy, key)) as content:
        heads = heads_of(content.standings())
    if heads != manifest.heads:
        raise BackupDamaged(str(folder), "its sessions do not have the hashes they had")
    try:
        check_sound(copy, key)
    except PerdureError as error:
        raise BackupDamaged(str(folder), str(error)) from error


def put_store(new: Path, path: Path, key: StoreKey | None, *, is_forced: bool) -> Path | None:
    """Make `new` the store at `path`; if it replaces a store, return the old store's new path.

    Durable: the new store is on the disk when the call returns. The call blocks.
    Raises: StoreExists if there is a store at `path` and `is_forced` is False. Raises StoreInUse if
    the old store is in use.
    """
    if not path.exists():
        put_where_nothing_is(new, path)
        return None
    if not is_forced:
        raise StoreExists(str(path), is_replaceable=True)
    aside = free_name(path, "before-restore")
    try:
        site = locate_site(path, key=key)
    except NotAStore:
        raise
    except PerdureError:  # another key, or damage: no process can have it open for writing
        site = None
    exchange(new, path, aside, site=site)
    return aside
