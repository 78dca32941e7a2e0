"""Results of `drop_from_keyring` for present, absent, locked and undeletable accounts."""

from __future__ import annotations

import pytest
from keyring.errors import KeyringLocked, PasswordDeleteError

from perdure.secrets.vault import SERVICE, drop_from_keyring
from tests.fakes.memory_keyring import MemoryKeyring, memory_keyring


def test_deleted_keyring_key_is_reported_as_removed() -> None:
    with memory_keyring() as keyring:
        keyring.kept[SERVICE, "openai"] = "value"
        assert drop_from_keyring("openai") == "removed"
        assert drop_from_keyring("openai") == "absent"


def test_keyring_account_that_cannot_be_deleted_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: MemoryKeyring, service: str, username: str) -> None:
        raise PasswordDeleteError(f"{service} {username}")

    def lock(self: MemoryKeyring, service: str, username: str) -> None:
        raise KeyringLocked(f"{service} {username}")

    with memory_keyring() as keyring:
        keyring.kept[SERVICE, "openai"] = "value"
        monkeypatch.setattr(MemoryKeyring, "delete_password", refuse)
        assert drop_from_keyring("openai") == "kept"
        monkeypatch.setattr(MemoryKeyring, "get_password", lock)
        assert drop_from_keyring("openai") == "unread"
