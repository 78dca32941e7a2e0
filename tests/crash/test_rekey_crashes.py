"""``kill -9`` during a rekey: the store is complete, and one of the two keys opens it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from perdure.errors import KeyMissing, KeyWrong, StoreNotEncrypted
from perdure.stores.key import StoreKey
from perdure.stores.sqlite.maintenance.rekey import rekey
from perdure.stores.sqlite.rekey_copy import unfinished_copy
from perdure.stores.sqlite.store import SqliteStore
from tests.crash.children import rekeyer
from tests.crash.children.rekeyer import KEYS
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.forked import preload, run_forked
from tests.fakes.planted import content_of, plant
from tests.fakes.samples import ALL_ONLY, EACH_KILL

preload(rekeyer.__name__)

WORD = "canary"


async def opened(path: Path, key: StoreKey | None) -> SqliteStore:
    return await SqliteStore.open(path, clock=ManualClock(), random=SeededRandom(1), key=key)


async def content(path: Path, key: StoreKey | None) -> bytes:
    store = await opened(path, key)
    try:
        assert (await store.maintenance.verify()).problems == ()
        return await content_of(store, WORD)
    finally:
        await store.close()


async def key_of(path: Path, names: tuple[str, str]) -> str:
    """Return which of the keys opens the store."""
    fitting: list[str] = []
    for name in names:
        try:
            await (await opened(path, KEYS[name])).close()
        except (KeyMissing, KeyWrong, StoreNotEncrypted):
            continue
        fitting.append(name)
    (only,) = fitting
    return only


def files_in(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def places_in(folder: Path) -> list[Path]:
    return sorted(place for place in folder.iterdir() if place.is_dir())


def await_removal(copy: Path) -> None:
    """Wait for removal of the copy that a killed rekey left, without opening the store."""
    for _ in range(6_000):
        if not copy.exists():
            return
        time.sleep(0.01)


def kill_at_each(folder: Path, names: tuple[str, str], step: int) -> None:
    assert run_forked(rekeyer.kill_at_each, folder, *names, step).code == 0


@pytest.mark.timeout(400)
@EACH_KILL
@pytest.mark.parametrize(
    "names",
    [
        ("first", "second"),
        pytest.param(("plain", "first"), marks=ALL_ONLY),
        pytest.param(("first", "plain"), marks=ALL_ONLY),
    ],
)
async def test_rekey_survives_kill_at_each_step(
    tmp_path: Path, names: tuple[str, str], step: int
) -> None:
    old, new = names
    original = tmp_path / "original.db"
    store = await opened(original, KEYS[old])
    await plant(store, WORD)
    before = await content_of(store, WORD)
    await store.close()

    kill_at_each(tmp_path, names, step)

    found: list[str] = []
    left = 0
    places = places_in(tmp_path)
    for place in places:
        path = place / "store.db"
        if new == "plain":
            await_removal(unfinished_copy(path))
        left += unfinished_copy(path).exists()
        found.append(await key_of(path, names))
        assert not [name for name in files_in(place) if "rekey" in name]
        if KEYS[found[-1]] is not None:
            assert not [file for file in place.iterdir() if WORD.encode() in file.read_bytes()]
        assert await content(path, KEYS[found[-1]]) == before
        if found[-1] == old:
            rekey(path, KEYS[old], KEYS[new], lambda _done, _total: None)
            assert await content(path, KEYS[new]) == before
        assert files_in(place) == {"store.db"}
    assert len(places) * step > 20
    assert left == 0 if new == "plain" else left * step > 10
    assert found == sorted(found, key=names.index)  # first only the old key fits, then the new one
    assert found[-1] == new
