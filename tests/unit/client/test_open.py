"""Opening a store by its address."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.blocking import open as open_blocking
from perdure.client.keys import keep_key, keep_next_key
from perdure.client.lookup.store_files import default_address
from perdure.client.open import open as open_store
from perdure.errors import (
    ConfigError,
    KeyMissing,
    KeyWrong,
    StoreNotEncrypted,
    StoreUnavailable,
    Unsupported,
    WrongArgument,
)
from perdure.session.messages import user
from perdure.stores.key import StoreKey
from tests.fakes.clock import START_MS, ManualClock, SeededRandom
from tests.fakes.memory_keyring import memory_keyring


async def test_store_in_memory_exists_until_the_end_of_its_block() -> None:
    async with open_store("memory:") as store:
        session = await store.create()
        await session.append(user("hi"))
    with pytest.raises(StoreUnavailable):
        await session.path()


@pytest.mark.parametrize(
    ("namespace", "told"),
    [
        ("", "is no namespace: give it a name"),
        ("\udcff", "is no namespace: give it a name"),
        (" ", "is no namespace: use a name without control characters"),
        ("team ", "is no namespace: use a name without control characters"),
        ("a\nb", "is no namespace: use a name without control characters"),
        (5, "open takes str as namespace, not int"),
        (None, "open takes str as namespace, not None"),
    ],
)
async def test_invalid_namespace_name_is_rejected(namespace: Any, told: str) -> None:
    with pytest.raises((ConfigError, WrongArgument), match=told):
        async with open_store("memory:", namespace=namespace):
            raise AssertionError("it was opened")


@pytest.mark.parametrize("address", ["sqlite:///a\0.db", "jsonl:///\udcff", "routes:///\ud800"])
async def test_address_with_unusable_characters_is_rejected(address: str) -> None:
    with pytest.raises(ConfigError, match="cannot hold a NUL character or half of a"):
        await open_store(address)


async def test_custom_clock_and_random_source_are_used() -> None:
    async with open_store("memory:", clock=ManualClock(), random=SeededRandom()) as store:
        session = await store.create()
        assert (await session.append(user("hi"))).at == START_MS


async def test_store_file_is_created_and_can_be_opened_again(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'new' / 'a.db'}"
    async with open_store(address, namespace="n", durability="normal") as store:
        await store.create(id="s")
        assert (await store.info()).namespace == "n"
    async with open_store(address, namespace="n") as store:
        assert (await store.open("s")).id == "s"


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("agents.db", "write sqlite:///agents.db$"),
        *((other, "use sqlite:///FILE, ") for other in ("mysql://host/db", "SQLITE:///x.db")),
        ("C:\\agents.db", "use sqlite:///FILE, "),
    ],
)
async def test_error_for_an_unknown_address_lists_the_known_addresses(
    address: str, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        async with open_store(address):
            raise AssertionError("it was opened")


async def test_error_for_a_missing_driver_mentions_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.startswith("perdure.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"psycopg.*perdure\[pg\]"):
        async with open_store("postgresql://host/db"):
            raise AssertionError("it was opened")


def test_opening_a_store_loads_no_erasure_modules(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys, perdure\n"
        "async def main():\n"
        f"    async with perdure.open({f'sqlite:///{tmp_path}/a.db'!r}):\n"
        "        print(*sys.modules)\n"
        "asyncio.run(main())"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "perdure.stores.sqlite.store" in loaded
    assert not [name for name in loaded if name.startswith("perdure.stores.sqlite.retention.")]


async def test_address_of_a_memory_store_accepts_no_name() -> None:
    with pytest.raises(ConfigError, match="memory:"):
        async with open_store("memory:mine"):
            raise AssertionError("it was opened")


async def test_open_without_address_opens_the_default_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_STORE", f"sqlite:///{tmp_path / 'default.db'}")
    async with open_store() as store:
        await store.create(id="s")
    assert (tmp_path / "default.db").exists()


DEFAULTS = [
    ({"PERDURE_STORE": "memory:", "HOME": "/home/me"}, "linux", "memory:"),
    ({"HOME": "/home/me"}, "linux", "sqlite:////home/me/.local/share/perdure/perdure.db"),
    (
        {"HOME": "/home/me", "XDG_DATA_HOME": "/data"},
        "linux",
        "sqlite:////data/perdure/perdure.db",
    ),
    (
        {"HOME": "/home/me", "XDG_DATA_HOME": "relative"},
        "linux",
        "sqlite:////home/me/.local/share/perdure/perdure.db",
    ),
    (
        {"HOME": "/Users/me"},
        "darwin",
        "sqlite:////Users/me/Library/Application Support/perdure/perdure.db",
    ),
    (
        {"USERPROFILE": "/users/me"},
        "win32",
        "sqlite:////users/me/AppData/Local/perdure/perdure.db",
    ),
]


@pytest.mark.parametrize(("environment", "platform", "address"), DEFAULTS)
def test_default_store_address_depends_on_environment_and_platform(
    environment: dict[str, str], platform: str, address: str
) -> None:
    assert default_address(environment, platform) == address


def test_store_without_a_home_folder_needs_an_address() -> None:
    with pytest.raises(ConfigError, match="PERDURE_STORE"):
        default_address({}, "linux")


async def test_empty_address_or_variable_never_opens_the_default_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match=r"^the address of the store is empty: write one"):
        await open_store("")
    monkeypatch.setenv("PERDURE_STORE", "")
    with pytest.raises(ConfigError, match=r"^PERDURE_STORE is empty: .* or unset it$"):
        await open_store()


async def test_sqlite_file_named_like_an_in_memory_database_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"would be a file of that name: use memory:$"):
        await open_store("sqlite:///:memory:")
    assert not list(tmp_path.iterdir())  # noqa: ASYNC240 - of a test


# ---------------------------------------------------------------- keys


KEY, OTHER = "ab" * 32, "cd" * 32


@pytest.fixture(autouse=True)
def no_key_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERDURE_KEY", raising=False)
    monkeypatch.delenv("PERDURE_KEY_FILE", raising=False)


@pytest.fixture
async def encrypted(tmp_path: Path) -> str:
    """Return the address of a store encrypted with `KEY`."""
    address = f"sqlite:///{tmp_path / 'e.db'}"
    async with open_store(address, key=KEY) as store:
        await store.create(id="s")
    return address


def names_in(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


async def sessions_in(address: str, key: str | None = None) -> int:
    async with open_store(address, key=key) as store:
        return len(await store.recent())


async def test_store_created_with_a_key_opens_only_with_this_key(encrypted: str) -> None:
    assert await sessions_in(encrypted, KEY) == 1
    with pytest.raises(KeyMissing):
        await sessions_in(encrypted)
    with pytest.raises(KeyWrong) as refused:
        await sessions_in(encrypted, OTHER)
    assert KEY not in str(refused.value)
    assert OTHER not in str(refused.value)
    assert OTHER not in str(refused.value.facts())


async def test_encryption_key_is_read_from_the_environment(
    encrypted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_KEY", KEY)
    assert await sessions_in(encrypted) == 1
    monkeypatch.setenv("PERDURE_KEY", OTHER)
    with pytest.raises(KeyWrong):
        await sessions_in(encrypted)


async def test_plain_store_is_rejected_if_key_is_given(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'p.db'}"
    await sessions_in(address)
    before = (tmp_path / "p.db").read_bytes()
    with pytest.raises(StoreNotEncrypted, match="encrypt it first"):
        await sessions_in(address, KEY)
    assert (tmp_path / "p.db").read_bytes() == before


async def test_keyring_key_is_used_for_encrypted_store(encrypted: str) -> None:
    with memory_keyring():
        keep_key(encrypted, StoreKey.of(KEY))
        assert await sessions_in(encrypted) == 1
        keep_next_key(encrypted, StoreKey.of(OTHER))
        assert await sessions_in(encrypted) == 1
        keep_key(encrypted, StoreKey.of(OTHER))
        keep_next_key(encrypted, StoreKey.of(KEY))  # a rekey that was cut off after its last step
        assert await sessions_in(encrypted) == 1
        keep_key(encrypted, StoreKey.of(OTHER))
        with pytest.raises(KeyWrong):
            await sessions_in(encrypted)


async def test_key_for_unencryptable_store_is_rejected() -> None:
    with pytest.raises(Unsupported, match="encryption"):
        await sessions_in("memory:", KEY)


async def test_invalid_key_is_rejected_before_creating_anything(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="64 hexadecimal"):
        await sessions_in(f"sqlite:///{tmp_path / 'new.db'}", "password")
    assert names_in(tmp_path) == []


def test_blocking_open_accepts_a_key(tmp_path: Path) -> None:
    with open_blocking(f"sqlite:///{tmp_path / 'b.db'}", key=KEY) as store:
        info = store.info()
    assert (info.is_encrypted, info.cipher) == (True, "AEGIS-256")


async def test_awaited_open_returns_store_that_must_be_closed(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path / 'a.db'}")
    session = await store.create()
    await store.close()
    with pytest.raises(StoreUnavailable):
        await session.append(user("hi"))
    async with await open_store(f"sqlite:///{tmp_path / 'a.db'}") as again:
        assert [info.id for info in await again.recent()] == [session.id]


async def test_error_for_a_store_used_before_opening_shows_correct_code() -> None:
    opening: Any = open_store("memory:")
    with pytest.raises(AttributeError, match=r"no 'create': use `async with perdure\.open"):
        opening.create()


@pytest.mark.full_only
def test_program_exits_even_if_it_does_not_close_its_store(tmp_path: Path) -> None:
    program = (
        "import asyncio, perdure\n"
        "async def main():\n"
        f"    store = await perdure.open('sqlite:///{tmp_path / 'a.db'}')\n"
        "    await (await store.create(id='s')).append(perdure.user('hi'))\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_error_for_a_store_opened_without_async_shows_the_correct_code() -> None:
    opening: Any = open_store("memory:")
    with (
        pytest.raises(TypeError, match=r"async with perdure\.open.*perdure\.blocking\.open"),
        opening,
    ):
        raise AssertionError("it was opened")
