"""Operations that exclude each other, and disks without file locks, such as some network disks."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

import pytest

from perdure.stores.maintenance.file_lock import alone_at, alone_in, in_turn


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_file: object, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)


def test_second_backup_into_folder_is_rejected_and_writes_nothing(
    tmp_path: Path,
) -> None:
    with alone_in(tmp_path):
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(BlockingIOError), alone_in(tmp_path):
            pass
    with alone_in(tmp_path):
        pass


@pytest.mark.usefixtures("no_locks")
def test_folder_can_be_locked_on_a_file_system_without_locks(tmp_path: Path) -> None:
    with alone_in(tmp_path), in_turn(tmp_path):
        pass


@pytest.mark.usefixtures("no_locks")
def test_failed_lock_leaves_no_lock_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No locks"), alone_at(tmp_path / "backup"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_lock_file_removed_by_its_last_holder_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, real = tmp_path / "backup", fcntl.flock

    def late(file: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", real)
        (tmp_path / "backup.lock").unlink()  # as its holder does, after this process opened it
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with alone_at(place), pytest.raises(BlockingIOError), alone_at(place):
        pass
