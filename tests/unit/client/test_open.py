"""From an address to a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.client.open import default_address
from perdure.client.open import open as open_store
from perdure.errors import ConfigError, StoreUnavailable
from perdure.session.messages import user
from tests.fakes.clock import START_MS, ManualClock, SeededRandom


async def test_a_store_in_memory_lives_as_long_as_its_block() -> None:
    async with open_store("memory:") as store:
        session = await store.create()
        await session.append(user("hi"))
    with pytest.raises(StoreUnavailable):
        await session.path()


async def test_time_and_randomness_can_be_given() -> None:
    async with open_store("memory:", clock=ManualClock(), random=SeededRandom()) as store:
        session = await store.create()
        assert (await session.append(user("hi"))).at == START_MS


async def test_a_file_is_made_and_found_again(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'new' / 'a.db'}"
    async with open_store(address, namespace="n", durability="normal") as store:
        await store.create(id="s")
        assert (await store.info()).namespace == "n"
    async with open_store(address, namespace="n") as store:
        assert (await store.open("s")).id == "s"


@pytest.mark.parametrize(
    "address",
    ["agents.db", "postgresql://host/db", "jsonl:///dir", "SQLITE:///x.db", "C:\\agents.db"],
)
async def test_other_addresses_are_refused_with_what_there_is(address: str) -> None:
    with pytest.raises(ConfigError, match=r"sqlite:///FILE or memory:"):
        async with open_store(address):
            raise AssertionError("it was opened")


async def test_memory_takes_no_name() -> None:
    with pytest.raises(ConfigError, match="memory:"):
        async with open_store("memory:mine"):
            raise AssertionError("it was opened")


async def test_nothing_named_opens_the_default_store(
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
def test_the_default_store_is_the_named_one_or_a_file_of_the_users(
    environment: dict[str, str], platform: str, address: str
) -> None:
    assert default_address(environment, platform) == address


def test_without_a_home_a_store_has_to_be_named() -> None:
    with pytest.raises(ConfigError, match="PERDURE_STORE"):
        default_address({}, "linux")
