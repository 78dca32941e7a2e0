"""The store that commands use; reading commands create no store."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.apps import store_access
from perdure.apps.settings import store_address as of_settings
from perdure.apps.store_access import (
    database_file,
    existing_store,
    file_address,
    is_missing,
    store_address,
    writable_store,
)
from perdure.errors import ConfigError, StoreCorrupt


def test_store_option_has_priority_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_STORE", "memory:")
    assert store_address("sqlite:///x.db") == "sqlite:///x.db"
    assert store_address(None) == "memory:"


def test_default_store_is_a_file_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERDURE_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert store_address(None).endswith("/perdure/perdure.db")


def test_database_file_is_read_from_the_store_address(tmp_path: Path) -> None:
    assert database_file("sqlite:///relative.db") == Path("relative.db")
    assert database_file("sqlite:////absolute.db") == Path("/absolute.db")
    assert database_file("sqlite:///why?.db") == Path("why?.db")
    assert database_file("memory:") is None
    assert database_file(file_address(tmp_path / "a.db")) == tmp_path / "a.db"


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_reading_from_a_missing_store_does_not_create_the_store(tmp_path: Path) -> None:
    address = file_address(tmp_path / "sub" / "x.db")
    assert is_missing(address)
    async with existing_store(address) as store:
        assert await store.recent() == []
    assert not files_in(tmp_path)


async def test_reading_from_a_missing_folder_does_not_create_the_folder(tmp_path: Path) -> None:
    address = f"jsonl:///{tmp_path / 'sub'}?dialect=pi"
    assert is_missing(address)
    async with existing_store(address) as store:
        assert await store.recent() == []
    assert not files_in(tmp_path)


@pytest.mark.parametrize(
    "address", ["sqlite:///", "sqlite:////", "sqlite:///.", "sqlite:///x?mode=ro", "x.db", "mysql:"]
)
def test_invalid_store_address_is_rejected(address: str) -> None:
    with pytest.raises(ConfigError):
        store_address(address)


async def test_empty_file_is_reported_as_damaged_and_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    file.touch()
    for opened in (existing_store, writable_store):
        with pytest.raises(StoreCorrupt, match="it is empty"):
            async with opened(file_address(file)):
                pass
    assert file.stat().st_size == 0


async def test_new_store_is_readable_only_by_its_user(tmp_path: Path) -> None:
    file = tmp_path / "sub" / "x.db"
    async with writable_store(file_address(file)) as store:
        await store.create(id="s")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    async with existing_store(file_address(file)) as store:
        assert [info.id for info in await store.recent()] == ["s"]


async def test_user_of_session_files_is_not_asked_about_encryption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(address: str) -> None:
        raise AssertionError(address)

    def chosen(name: str) -> str | None:
        return f"jsonl:///{tmp_path}/new" if name == "store.address" else None

    monkeypatch.delenv("PERDURE_STORE", raising=False)
    monkeypatch.setattr(of_settings, "setting", chosen)
    monkeypatch.setattr(store_access, "is_at_terminal", lambda: True)
    monkeypatch.setattr(store_access, "offered_key", refuse)
    async with writable_store(None) as store:
        assert store.backend.address.startswith("jsonl:///")
