"""Two processes do the same operation on one place concurrently: one succeeds, the other fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.apps.maintenance.backup import back_up
from perdure.apps.maintenance.repair import repair_store
from perdure.apps.maintenance.restore import restore_backup
from perdure.client.open import open as open_store
from perdure.session.messages import user
from perdure.stores.maintenance.manifest import check_file, read_manifest
from perdure.stores.sqlite.maintenance import repair as repairing
from perdure.stores.sqlite.maintenance import restore as restores

REFUSED = 4


def address(path: Path) -> str:
    return f"sqlite:///{path}"


async def say(path: Path, *said: str) -> None:
    async with open_store(address(path), durability="normal") as store:
        session = await store.create(id="s")
        for text in said:
            await session.append(user(text))


async def texts(path: Path) -> list[str]:
    async with open_store(address(path)) as store:
        assert (await store.verify()).problems == ()
        entries = await store.backend.entries((await store.open("s")).id)
    return [entry.message.text for entry in entries if entry.message is not None]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def other_process(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perdure", "store", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


async def test_backup_during_its_rename_is_not_removed_by_another_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, folder = tmp_path / "a.db", tmp_path / "backup"
    await say(store, "one")
    others: list[subprocess.CompletedProcess[str]] = []
    replace = Path.replace

    def rival(self: Path, target: Path) -> Path:
        if target == folder:
            others.append(other_process("backup", folder, "--store", address(store)))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", rival)
    await back_up(address(store), folder)

    (other,) = others
    assert other.returncode == REFUSED, other.stderr
    check_file(folder, read_manifest(folder))
    assert names(tmp_path) == {"a.db", "backup"}


async def test_concurrent_restores_each_restore_whole_backup_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mine", "theirs"):
        await say(tmp_path / f"{name}.db", name)
        await back_up(address(tmp_path / f"{name}.db"), tmp_path / name)
    place = tmp_path / "again" / "store.db"
    others: list[subprocess.CompletedProcess[str]] = []
    check = restores.check_fetched

    def rival(*arguments: Any) -> None:
        check(*arguments)
        others.append(other_process("restore", tmp_path / "theirs", "--store", address(place)))

    monkeypatch.setattr(restores, "check_fetched", rival)
    await restore_backup(tmp_path / "mine", address(place))

    (other,) = others
    assert other.returncode == REFUSED, other.stderr
    assert await texts(place) == ["mine"]
    assert names(place.parent) == {"store.db"}


async def test_two_repairs_of_unopenable_store_do_not_interfere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    said = [f"text {number} " + "x" * 300 for number in range(30)]
    await say(path, *said)
    content = bytearray(path.read_bytes())
    content[100:4_096] = os.urandom(3_996)
    path.write_bytes(content)
    others: list[subprocess.CompletedProcess[str]] = []
    salvaged = repairing.salvage_file

    def rival(*arguments: Any) -> Any:
        others.append(other_process("repair", "--store", address(path)))
        return salvaged(*arguments)

    monkeypatch.setattr(repairing, "salvage_file", rival)
    done = await repair_store(address(path))

    (other,) = others
    assert other.returncode == REFUSED, other.stderr
    assert done.is_damaged
    assert await texts(path) == said
