"""``kill -9`` during a backup, restore, repair or copy leaves no partial result."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.apps.maintenance.backup import back_up
from perdure.client.open import open as open_store
from perdure.session.messages import user
from perdure.stores.maintenance.manifest import check_file, read_manifest
from tests.crash.children import store_worker
from tests.crash.children.store_worker import WORK
from tests.fakes.forked import preload, run_forked
from tests.fakes.samples import EACH_KILL

preload(store_worker.__name__)


def address(path: Path) -> str:
    return f"sqlite:///{path}"


async def say(path: Path, *said: str) -> None:
    async with open_store(address(path), durability="normal") as store:
        await store.create(id="s")
        for text in said:
            await (await store.open("s")).append(user(text))


async def texts(path: Path) -> list[str]:
    async with open_store(address(path)) as store:
        assert (await store.backend.maintenance.verify()).problems == ()
        entries = await store.backend.entries((await store.open("s")).id)
    return [entry.message.text for entry in entries if entry.message is not None]


def kill_at_each(folder: Path, work: str, step: int) -> list[Path]:
    assert run_forked(store_worker.kill_at_each, folder, work, step).code == 0
    places = sorted(place for place in folder.iterdir() if place.name != "original")
    assert len(places) * step > 5
    return places


@pytest.fixture
def original(tmp_path: Path) -> Path:
    made = tmp_path / "work" / "original"
    made.mkdir(parents=True)
    asyncio.run(say(made / "store.db", *(f"text {number} " + "x" * 900 for number in range(30))))
    return made


def finish(place: Path, work: str) -> None:
    asyncio.run(WORK[work](place))  # pyright: ignore[reportArgumentType] - each is a coroutine function


@pytest.mark.timeout(400)
@EACH_KILL
def test_killed_backup_leaves_no_backup(original: Path, step: int) -> None:
    before = asyncio.run(texts(original / "store.db"))
    for place in kill_at_each(original.parent, "backup", step):
        folder = place / "backup"
        if not folder.exists():
            finish(place, "backup")
        check_file(folder, read_manifest(folder))
        assert {path.name for path in folder.iterdir()} == {"store.sqlite", "manifest.json"}
        assert not (place / "backup.partial").exists()
        assert asyncio.run(texts(place / "store.db")) == before


@pytest.mark.timeout(400)
@EACH_KILL
def test_killed_restore_leaves_old_or_new_store(original: Path, tmp_path: Path, step: int) -> None:
    async def prepare() -> None:
        await say(tmp_path / "taken.db", "from the backup")
        await back_up(address(tmp_path / "taken.db"), original / "taken")

    asyncio.run(prepare())
    old, new = asyncio.run(texts(original / "store.db")), ["from the backup"]
    found: list[bool] = []
    for place in kill_at_each(original.parent, "restore", step):
        here = asyncio.run(texts(place / "store.db"))
        assert here in (old, new)
        found.append(here == new)
        finish(place, "restore")
        assert asyncio.run(texts(place / "store.db")) == new
        assert {path.name for path in place.iterdir() if path.is_file()} == {"store.db"}
    assert found == sorted(found)


@pytest.mark.timeout(400)
@EACH_KILL
def test_killed_repair_leaves_damaged_or_repaired_store(original: Path, step: int) -> None:
    path = original / "store.db"
    content = bytearray(path.read_bytes())
    content[content.index(b"text 12 ")] ^= 4
    path.write_bytes(content)
    for place in kill_at_each(original.parent, "repair", 7 * step):
        here = (place / "store.db").read_bytes()
        is_damaged = here == bytes(content)
        if not is_damaged:
            assert len(asyncio.run(texts_left(place / "store.db"))) == 29
        finish(place, "repair")
        assert len(asyncio.run(texts_left(place / "store.db"))) == 29
        assert not (place / "store.db-repairing").exists()


async def texts_left(path: Path) -> list[str]:
    async with open_store(address(path)) as store:
        assert (await store.backend.maintenance.verify()).problems == ()
        entries = await store.backend.entries((await store.open("s")).id)
    return [entry.kind for entry in entries if entry.kind == "message" and not entry.is_erased]


@pytest.mark.timeout(400)
@EACH_KILL
def test_killed_copy_continues_when_repeated(original: Path, step: int) -> None:
    before = asyncio.run(texts(original / "store.db"))
    for place in kill_at_each(original.parent, "copy", 3 * step):
        finish(place, "copy")
        assert asyncio.run(texts(place / "copy.db")) == before
        assert asyncio.run(texts(place / "store.db")) == before
