"""A received backup folder: its files are read within limits, and no link leads outside."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from perdure.apps.maintenance.backup import back_up
from perdure.apps.maintenance.restore import restore_backup
from perdure.errors import BackupDamaged, PerdureError
from perdure.stores.maintenance.manifest import MANIFEST_NAME, STORE_NAME, hash_of, read_manifest
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.streams import create, say

LIMIT_S = 60.0
Plant = Callable[[Path, Path], None]


async def backup(tmp_path: Path) -> tuple[Path, Path]:
    """A good backup, and a folder outside with a copy of its files."""
    path = tmp_path / "origin.db"
    store = await SqliteStore.open(path, clock=ManualClock(), random=SeededRandom(1))
    await create(store)
    await say(store, "hello")
    await store.close()
    folder, outside = tmp_path / "backup", tmp_path / "outside"
    await back_up(f"sqlite:///{path}", folder)
    outside.mkdir()
    for name in (MANIFEST_NAME, STORE_NAME):
        (outside / name).write_bytes((folder / name).read_bytes())
    return folder, outside


def link(name: str, target: str) -> Plant:
    def plant(folder: Path, outside: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target.replace("OUT", str(outside)))

    return plant


def fifo(name: str) -> Plant:
    def plant(folder: Path, _: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return plant


def directory(name: str) -> Plant:
    def plant(folder: Path, _: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return plant


def sparse(name: str, size: int) -> Plant:
    def plant(folder: Path, _: Path) -> None:
        os.truncate(folder / name, size)

    return plant


def said(content: bytes) -> Plant:
    def plant(folder: Path, _: Path) -> None:
        (folder / MANIFEST_NAME).write_bytes(content)

    return plant


def changed(**facts: object) -> Plant:
    """A manifest with other values, of the right type or not."""

    def plant(folder: Path, _: Path) -> None:
        manifest = msgspec.to_builtins(read_manifest(folder)) | facts
        (folder / MANIFEST_NAME).write_bytes(msgspec.json.encode(manifest))

    return plant


FORMS: dict[str, Plant] = {
    "manifest-is-a-link": link(MANIFEST_NAME, f"OUT/{MANIFEST_NAME}"),
    "manifest-is-a-link-to-zeros": link(MANIFEST_NAME, "/dev/zero"),
    "manifest-is-a-pipe": fifo(MANIFEST_NAME),
    "manifest-is-a-folder": directory(MANIFEST_NAME),
    "manifest-of-a-terabyte": sparse(MANIFEST_NAME, 2**40),
    "manifest-nested-deep": said(b"[" * 60_000),
    "manifest-of-another-type": said(b"[1, 2]"),
    "manifest-not-text": said(b"\xff\xfe\x00"),
    "manifest-with-negative-bytes": changed(bytes=-1),
    "manifest-with-huge-bytes": changed(bytes=2**62),
    "manifest-with-a-path": changed(sha256="../../outside"),
    "manifest-without-a-number": changed(schema="six"),
    "manifest-of-other-heads": changed(heads="00"),
    "store-is-a-link": link(STORE_NAME, f"OUT/{STORE_NAME}"),
    "store-is-a-link-to-zeros": link(STORE_NAME, "/dev/zero"),
    "store-is-a-pipe": fifo(STORE_NAME),
    "store-is-a-folder": directory(STORE_NAME),
    "store-of-a-terabyte": sparse(STORE_NAME, 2**40),
    "store-cut-off": sparse(STORE_NAME, 4096),
}


@pytest.mark.parametrize("form", FORMS)
async def test_received_backup_is_refused(form: str, tmp_path: Path) -> None:
    folder, _ = await backup(tmp_path)
    FORMS[form](folder, tmp_path / "outside")
    target = tmp_path / "restored.db"
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(BackupDamaged):
            await restore_backup(folder, f"sqlite:///{target}")
    assert not target.exists()


async def test_backup_does_not_follow_a_link_at_its_temporary_folder(tmp_path: Path) -> None:
    _, outside = await backup(tmp_path)
    before = {path.name: hash_of(path) for path in outside.iterdir()}
    (tmp_path / "second.partial").symlink_to(outside)
    with pytest.raises(PerdureError, match="symbolic link"):
        await back_up(f"sqlite:///{tmp_path / 'origin.db'}", tmp_path / "second")
    assert {path.name: hash_of(path) for path in outside.iterdir()} == before


async def test_lock_file_that_is_a_link_leaves_its_target_unchanged(tmp_path: Path) -> None:
    folder, outside = await backup(tmp_path)
    precious = outside / MANIFEST_NAME
    before = precious.read_bytes()
    (tmp_path / "restored.db-restoring.lock").symlink_to(precious)
    with pytest.raises(PerdureError):
        await restore_backup(folder, f"sqlite:///{tmp_path / 'restored.db'}")
    assert precious.read_bytes() == before
