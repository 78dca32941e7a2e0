"""The sources of a store's key, their order, and rejected keys."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.client import keys
from perdure.client.keys import (
    canonical,
    configured_key,
    keep_key,
    keep_next_key,
    key_in_file,
    keyring_keys,
    write_key_file,
)
from perdure.errors import KeyMissing
from perdure.stores.key import StoreKey
from tests.fakes.memory_keyring import memory_keyring

ADDRESS = "sqlite:///x.db"
FIRST, SECOND, THIRD = (StoreKey(bytes([number]) * 32) for number in range(3))


def test_key_argument_has_priority_over_environment_and_key_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    write_key_file(file, THIRD)
    in_file = {"PERDURE_KEY_FILE": str(file)}
    in_both = {"PERDURE_KEY": f" {SECOND.reveal()}\n", **in_file}

    assert configured_key(FIRST, in_both, ADDRESS) is FIRST
    assert configured_key(FIRST.reveal(), in_both, ADDRESS) == FIRST
    assert configured_key(None, in_both, ADDRESS) == SECOND
    assert configured_key(None, in_file, ADDRESS) == THIRD
    assert configured_key(None, {}, ADDRESS) is None


@pytest.mark.parametrize("value", ["", "secret", "0" * 63])
def test_variable_with_malformed_key_raises_key_missing(value: str) -> None:
    with pytest.raises(KeyMissing, match="PERDURE_KEY holds no key") as refused:
        configured_key(None, {"PERDURE_KEY": value}, ADDRESS)
    assert "secret" not in str(refused.value)
    assert refused.value.__cause__ is refused.value.__context__ is None


def test_missing_or_damaged_key_file_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "key"
    with pytest.raises(KeyMissing, match="No such file"):
        configured_key(None, {"PERDURE_KEY_FILE": str(file)}, ADDRESS)
    with pytest.raises(KeyMissing, match="PERDURE_KEY_FILE is empty"):
        configured_key(None, {"PERDURE_KEY_FILE": ""}, ADDRESS)
    file.write_bytes(b"\xff" * 40)
    file.chmod(0o600)
    with pytest.raises(KeyMissing, match="holds no key"):
        key_in_file(file, ADDRESS)


@pytest.mark.skipif(sys.platform == "win32", reason="files have no modes there")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_key_file_readable_by_other_users_is_rejected(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "key"
    write_key_file(file, FIRST)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(mode)

    with pytest.raises(KeyMissing, match="chmod 600"):
        key_in_file(file, ADDRESS)


def test_key_file_is_never_overwritten(tmp_path: Path) -> None:
    write_key_file(tmp_path / "key", FIRST)
    with pytest.raises(FileExistsError):
        write_key_file(tmp_path / "key", SECOND)
    assert key_in_file(tmp_path / "key", ADDRESS) == FIRST


def test_keyring_stores_a_key_under_the_absolute_path_of_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with memory_keyring() as keyring:
        assert keyring_keys(ADDRESS) == ()
        assert keep_key(ADDRESS, FIRST)
        assert list(keyring.kept) == [("perdure", f"sqlite:///{tmp_path.resolve()}/x.db")]
        assert keyring_keys(ADDRESS) == keyring_keys(f"sqlite:///{tmp_path}/x.db") == (FIRST,)


def test_keyring_can_contain_a_current_and_a_next_key() -> None:
    with memory_keyring() as keyring:
        keep_key(ADDRESS, FIRST)
        assert keep_next_key(ADDRESS, SECOND)
        assert keyring_keys(ADDRESS) == (FIRST, SECOND)
        assert keep_key(ADDRESS, SECOND)
        assert keyring_keys(ADDRESS) == (SECOND,)
        assert len(keyring.kept) == 1


def test_malformed_keyring_value_is_not_a_key() -> None:
    with memory_keyring() as keyring:
        keyring.kept["perdure", canonical(ADDRESS)] = "password1"
        assert keyring_keys(ADDRESS) == ()


def test_unusable_keyring_returns_no_key_and_raises_no_error() -> None:
    code = (
        "import keyring, keyring.backends.fail as fail\n"
        "keyring.set_keyring(fail.Keyring())\n"
        "from perdure.client import keys\nfrom perdure.stores.key import StoreKey\n"
        "print(keys.keyring_keys('a'), keys.keep_key('a', StoreKey(bytes(32))))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert told.split() == ["()", "False"]


def test_missing_keyring_package_gives_no_key_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert keys.keyring_keys(ADDRESS) == ()
    assert not keys.keep_next_key(ADDRESS, FIRST)
