"""The first run: the question about a key, and the effect of its answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import keyring
import keyring.backends.fail
import pytest

from perdure.apps import store_access
from perdure.apps.store_access import offered_key
from perdure.client.keys import keep_key, keyring_keys
from perdure.stores.key import StoreKey
from tests.fakes.file_keyring import FileKeyring
from tests.fakes.memory_keyring import MemoryKeyring, memory_keyring
from tests.fakes.processes import Child, child

ADDRESS = "sqlite:///x.db"
FIRST_RUN = Path(__file__).parent / "children" / "first_run.py"


@pytest.fixture(autouse=True)
def no_key_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERDURE_KEY", raising=False)
    monkeypatch.delenv("PERDURE_KEY_FILE", raising=False)


@pytest.fixture
def kept() -> Iterator[MemoryKeyring]:
    with memory_keyring() as made:
        yield made


def nobody() -> bool:
    raise AssertionError("nobody should be asked")


@pytest.mark.usefixtures("kept")
def test_answer_yes_creates_and_stores_an_encryption_key() -> None:
    key = offered_key(ADDRESS, lambda: True)

    assert key is not None
    assert keyring_keys(ADDRESS) == (key,)
    assert offered_key("sqlite:///other.db", lambda: True) != key


def test_answering_no_to_the_encryption_question_stores_no_key(kept: MemoryKeyring) -> None:
    assert offered_key(ADDRESS, lambda: False) is None
    assert kept.kept == {}


@pytest.mark.usefixtures("kept")
def test_existing_key_of_the_store_is_not_replaced() -> None:
    before = StoreKey(b"\x01" * 32)
    keep_key(ADDRESS, before)
    assert offered_key(ADDRESS, lambda: True) == before


def test_configured_key_causes_no_encryption_question(
    kept: MemoryKeyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_KEY", "ab" * 32)
    assert offered_key(ADDRESS, nobody) is None
    assert kept.kept == {}


def test_unusable_keyring_causes_no_encryption_question() -> None:
    before = keyring.get_keyring()
    keyring.set_keyring(keyring.backends.fail.Keyring())
    try:
        assert offered_key(ADDRESS, nobody) is None
    finally:
        keyring.set_keyring(before)


def test_store_stays_plain_if_the_keyring_rejects_its_key(
    kept: MemoryKeyring, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def locked(_service: str, _user: str, _password: str) -> None:
        raise RuntimeError("locked")

    monkeypatch.setattr(kept, "set_password", locked)

    assert offered_key(ADDRESS, lambda: True) is None
    assert "plain" in capsys.readouterr().err


def test_no_key_is_stored_for_a_store_that_cannot_be_created(
    tmp_path: Path, kept: MemoryKeyring
) -> None:
    """The reason is reported when the store is opened."""
    (tmp_path / "file").touch()
    assert offered_key(f"sqlite:///{tmp_path}/file/data/perdure.db", lambda: True) is None
    assert kept.kept == {}


def test_two_concurrent_first_runs_share_one_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, address = keyring.get_keyring(), f"sqlite:///{tmp_path}/data/perdure.db"
    monkeypatch.setenv("PERDURE_TEST_KEYRING", str(tmp_path / "keyring.json"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "tests.fakes.file_keyring.FileKeyring")
    keyring.set_keyring(FileKeyring())
    others: list[Child] = []
    look = store_access.keyring_keys
    with ExitStack() as stack:

        def rival(at: str) -> tuple[StoreKey, ...]:
            """Start another run after the tested run has checked for a key."""
            found = look(at)
            others.append(stack.enter_context(child(FIRST_RUN, at)))
            others[0].tell()
            time.sleep(0.3)
            return found

        monkeypatch.setattr(store_access, "keyring_keys", rival)
        try:
            mine = offered_key(address, lambda: True)
        finally:
            keyring.set_keyring(before)
        assert mine is not None
        assert others[0].last_line() == mine.reveal()
