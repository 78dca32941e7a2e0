"""Keys come from the environment, a file or the keyring; the text form of a key hides the key."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from perdure.errors import ConfigError
from perdure.models.catalogue import PROVIDERS
from perdure.models.keys import ApiKey, find_key, key_file, write_key_file
from perdure.secrets.vault import in_keyring

SECRET = "sk-test-0123456789abcdef"


def nothing(name: str) -> None:
    """A keyring without keys."""


def held(keys: dict[str, str]) -> ModuleType:
    """Return a fake ``keyring`` module that has the passwords `keys` for the service perdure."""

    def get_password(service: str, user: str) -> str | None:
        return keys.get(user) if service == "perdure" else None

    module = ModuleType("keyring")
    vars(module)["get_password"] = get_password
    return module


def test_key_in_the_environment_is_preferred_to_the_keyring() -> None:
    def asked(name: str) -> str:
        raise AssertionError(f"the keyring was asked for {name}")

    key = find_key(PROVIDERS["anthropic"], {"ANTHROPIC_API_KEY": SECRET}, asked)
    assert key is not None
    assert (key.value, key.source) == (SECRET, "ANTHROPIC_API_KEY")


def test_first_environment_variable_with_a_value_is_used() -> None:
    environment = {"GEMINI_API_KEY": " ", "GOOGLE_API_KEY": f"{SECRET}\n"}
    key = find_key(PROVIDERS["google"], environment, nothing)
    assert key is not None
    assert (key.value, key.source) == (SECRET, "GOOGLE_API_KEY")


def test_both_openai_clients_share_a_key_in_the_keyring() -> None:
    keys = {"openai": f" {SECRET} "}
    for name in ("openai", "openai-responses"):
        key = find_key(PROVIDERS[name], {}, keys.get)
        assert key is not None
        assert (key.value, key.source) == (SECRET, "keyring")


def test_lookup_of_a_missing_provider_key_returns_none() -> None:
    assert find_key(PROVIDERS["openai"], {}, nothing) is None
    assert find_key(PROVIDERS["openai"], {"OPENAI_API_KEY": ""}, {"openai": " "}.get) is None


def test_keyring_is_used_if_there_is_no_home_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "relative")
    write_key_file(tmp_path / "relative/.config/perdure/keys/openai", "of this folder")
    key = find_key(PROVIDERS["openai"], {}, {"openai": SECRET}.get)
    assert key is not None
    assert (key.value, key.source) == (SECRET, "keyring")
    with pytest.raises(ConfigError, match="set HOME"):
        key_file(PROVIDERS["openai"], {})


def test_text_form_of_key_does_not_contain_its_value() -> None:
    key = ApiKey(SECRET, "keyring")
    assert SECRET not in f"{key} {key!r} {[key]}"


def test_keyring_lookup_uses_the_provider_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", held({"openai": SECRET}))
    assert in_keyring("openai") == SECRET
    assert in_keyring("anthropic") is None


def test_missing_keyring_library_gives_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert in_keyring("openai") is None


def test_failing_keyring_gives_no_key_and_its_error_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = held({})

    def get_password(service: str, user: str) -> str:
        raise RuntimeError(f"locked; it holds {SECRET}")

    monkeypatch.setattr(broken, "get_password", get_password)
    monkeypatch.setitem(sys.modules, "keyring", broken)
    with caplog.at_level("DEBUG"):
        assert in_keyring("openai") is None
    assert "RuntimeError" in caplog.text
    assert SECRET not in caplog.text


def test_keyring_of_headless_machine_gives_no_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keyring = pytest.importorskip("keyring")
    failing = pytest.importorskip("keyring.backends.fail")
    monkeypatch.setattr(keyring.core, "_keyring_backend", failing.Keyring())
    assert in_keyring("openai") is None


def test_key_file_appears_only_after_its_content_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced = tmp_path / "openai", list[tuple[int, bool]]()

    def sync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_size, path.exists()))

    monkeypatch.setattr(os, "fsync", sync)
    write_key_file(path, SECRET)
    assert synced == [(len(SECRET) + 1, False)]


def test_key_is_read_from_environment_before_key_file_and_keyring(tmp_path: Path) -> None:
    place = {"XDG_CONFIG_HOME": str(tmp_path)}
    openai = PROVIDERS["openai-responses"]
    write_key_file(key_file(openai, place), SECRET)
    kept = find_key(openai, place, {"openai": "other"}.get)
    given = find_key(openai, {**place, "OPENAI_API_KEY": "given"}, nothing)
    assert kept is not None
    assert given is not None
    assert (kept.value, kept.source) == (SECRET, "file")
    assert given.value == "given"
    assert SECRET not in repr(kept)
