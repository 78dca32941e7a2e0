"""Files that several processes create concurrently: each is complete and written by one process."""

from __future__ import annotations

import errno
import io
import os
import signal
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from perdure.apps.settings.lookup import setting
from perdure.apps.setup.command import set_up
from perdure.stores.maintenance.atomic_file import write_new
from tests.fakes.deaths import exit_code_of


def test_exclusive_file_creation_keeps_an_existing_file(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    assert write_new(file, "mine")
    assert not write_new(file, "theirs")
    assert file.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_file_created_concurrently_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, link = tmp_path / "a.txt", os.link

    def late(source: Path, target: Path) -> None:
        target.write_text("theirs")
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    assert not write_new(file, "mine")
    assert file.read_text() == "theirs"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_exclusive_file_creation_works_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(_source: Path, _target: Path) -> None:
        raise OSError(number, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    assert write_new(tmp_path / "a.txt", "mine")
    assert (tmp_path / "a.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_failed_write_on_a_full_disk_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(self: Path, text: str, _encoding: str) -> None:
        self.write_bytes(text.encode()[:2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fill)
    with pytest.raises(OSError, match="No space"):
        write_new(tmp_path / "a.txt", "mine")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [1, 2, 3])
def test_killed_init_command_leaves_a_complete_namespace_or_none(
    tmp_path: Path, number: int
) -> None:
    """The kill happens when a file is open and still empty."""

    def init() -> None:
        open_file, opened = io.open, 0

        def killed(path: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
            nonlocal opened
            file = open_file(path, mode, *arguments, **named)
            opened += mode in ("w", "x")
            if opened == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return file

        with mock.patch.object(io, "open", killed):
            set_up(tmp_path, "tides")

    assert exit_code_of(init) == -signal.SIGKILL
    nobody = {"HOME": str(tmp_path / "home")}
    is_there = (tmp_path / ".perdure" / "config.toml").exists()
    assert setting("store.namespace", tmp_path, nobody) == ("tides" if is_there else None)
    set_up(tmp_path, "tides")
    assert setting("store.namespace", tmp_path, nobody) == "tides"
