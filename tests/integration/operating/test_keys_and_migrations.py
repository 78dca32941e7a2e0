"""Keys, migrations and clean-up of a whole store."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.apps.maintenance.commands import planned_migration
from perdure.apps.maintenance.rekey import rekey_store
from perdure.apps.maintenance.whole_store import is_encrypted
from perdure.client.keys import keep_key, keep_next_key
from perdure.client.open import open as open_store
from perdure.errors import KeyMissing, KeyWrong, NotAStore, StoreInUse, Unsupported
from perdure.stores.key import StoreKey
from perdure.stores.maintenance.protocol import VacuumReport
from tests.fakes.memory_keyring import memory_keyring

FIRST, SECOND = "ab" * 32, "cd" * 32


@pytest.fixture(autouse=True)
def no_key_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERDURE_KEY", raising=False)
    monkeypatch.delenv("PERDURE_KEY_FILE", raising=False)


@pytest.fixture
async def address(tmp_path: Path) -> str:
    """A plain store with a session."""
    made = f"sqlite:///{tmp_path / 'a.db'}"
    async with open_store(made) as store:
        await store.create(id="s")
    return made


async def sessions_in(address: str, key: str | None) -> int:
    async with open_store(address, key=key) as store:
        return len(await store.recent())


async def test_store_is_encrypted_rekeyed_and_decrypted(address: str) -> None:
    told: list[tuple[int, int]] = []
    assert not await is_encrypted(address)

    await rekey_store(address, FIRST, on_progress=lambda done, total: told.append((done, total)))
    assert await is_encrypted(address)
    assert await sessions_in(address, FIRST) == 1
    assert told[-1][0] == told[-1][1]

    await rekey_store(address, bytes.fromhex(SECOND), key=FIRST)
    assert await sessions_in(address, SECOND) == 1
    with pytest.raises(KeyWrong):
        await rekey_store(address, None, key=FIRST)

    await rekey_store(address, None, key=SECOND)
    assert await sessions_in(address, None) == 1


async def test_rekey_finds_the_current_key_in_the_same_places_as_open(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rekey_store(address, FIRST)
    with memory_keyring():
        with pytest.raises(KeyMissing):
            await rekey_store(address, SECOND)
        keep_key(address, StoreKey.of(SECOND))
        keep_next_key(address, StoreKey.of(FIRST))
        await rekey_store(address, SECOND)
        assert await sessions_in(address, SECOND) == 1
    monkeypatch.setenv("PERDURE_KEY", SECOND)
    await rekey_store(address, FIRST)
    assert await sessions_in(address, FIRST) == 1


async def test_rekey_of_store_open_in_this_process_is_rejected(address: str) -> None:
    async with open_store(address) as store:
        with pytest.raises(StoreInUse):
            await rekey_store(address, FIRST)
        assert len(await store.recent()) == 1


async def test_malformed_key_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="64 hexadecimal"):
        await rekey_store(address, "password")
    assert await sessions_in(address, None) == 1


async def test_missing_file_is_not_a_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        await rekey_store(f"sqlite:///{tmp_path / 'nothing.db'}", FIRST)


async def test_unsupported_encryption_or_migration_raises_unsupported() -> None:
    with pytest.raises(Unsupported, match="encryption"):
        await is_encrypted("memory:")
    with pytest.raises(Unsupported, match="encryption"):
        await rekey_store("memory:", FIRST)
    with pytest.raises(Unsupported, match="migrations"):
        await planned_migration("memory:")
    async with open_store("memory:") as store:
        with pytest.raises(Unsupported, match="vacuum"):
            await store.backend.maintenance.vacuum()


async def test_current_store_needs_no_migration(address: str) -> None:
    assert (await planned_migration(address)).steps == ()
    await rekey_store(address, FIRST)
    plan = await planned_migration(address, key=FIRST)
    assert plan.current == plan.latest


async def test_vacuum_reports_its_result(address: str) -> None:
    async with open_store(address) as store:
        assert await store.backend.maintenance.vacuum() == VacuumReport(0, 0, 0)
