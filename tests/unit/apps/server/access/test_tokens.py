"""Tokens: created once, stored as hashes, expired and revoked."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path, PosixPath

import pytest

from perdure.apps.server.access.tokens import Principal, TokenFile, TokenRecord
from perdure.errors import ConfigError


def record(id: str = "k1", **fields: object) -> TokenRecord:
    return TokenRecord(id=id, hash="", role="write", created_at=5, **fields)  # type: ignore[arg-type] # fields of the record


def test_new_token_is_valid_after_the_token_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "tokens.json"
    token = TokenFile(file).create(record(subject="ana"), os.urandom(32))
    assert TokenFile(file).principal(token, 10) == Principal("k1", "write", subject="ana")
    assert token not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_token_with_a_wrong_secret_or_an_unknown_id_is_refused(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    token = tokens.create(record(), os.urandom(32))
    assert tokens.principal(token[:-1] + ("0" if token[-1] != "0" else "1"), 10) is None
    for wrong in ("", "pdr_", "pdr_k1", "pdr_k1_", "k1", token + "0", "pdr_k2" + token[6:]):
        assert tokens.principal(wrong, 10) is None


def test_token_expires_and_can_be_revoked(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    brief = tokens.create(record(expires_at=100), os.urandom(32))
    lasting = tokens.create(record("k2"), os.urandom(32))
    assert tokens.principal(brief, 99) is not None
    assert tokens.principal(brief, 100) is None
    other = TokenFile(tokens.path)
    assert other.principal(lasting, 100) is not None
    tokens.revoke("k2", 100)
    assert other.principal(lasting, 101) is None
    with pytest.raises(ConfigError, match="no token 'k9'"):
        tokens.revoke("k9", 100)


def test_file_without_tokens_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    file.write_text("{}")
    with pytest.raises(ConfigError, match="no file of tokens"):
        TokenFile(file).principal("pdr_k1_00", 1)


class ReplacedFile(PosixPath):
    """A file that is missing for `times` reads, because another process replaces it."""

    times = 1

    def read_bytes(self) -> bytes:
        self.times -= 1
        if self.times >= 0:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        return super().read_bytes()


def test_token_file_that_is_replaced_during_a_read_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    token = TokenFile(file).create(record(), os.urandom(32))
    replaced = ReplacedFile(file)
    assert TokenFile(replaced).principal(token, 10) is not None
    replaced.times = 100
    with pytest.raises(ConfigError, match="cannot read"):
        TokenFile(replaced).principal(token, 10)


def test_token_file_and_its_folder_are_synced_before_a_change_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []

    def sync(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))

    monkeypatch.setattr(os, "fsync", sync)
    tokens = TokenFile(tmp_path / "tokens.json")
    tokens.create(record(), os.urandom(32))
    tokens.revoke("k1", 100)
    assert synced == [False, True] * 2


def test_error_for_an_unreadable_token_file_gives_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "tokens.json"
    folder.mkdir()
    with pytest.raises(ConfigError) as refused:
        TokenFile(folder).records()
    assert str(refused.value) == f"cannot read {folder}: Is a directory"
