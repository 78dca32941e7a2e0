"""The search for the process that holds a file lock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.stores.access import lock_holder


def test_lock_that_the_system_lists_twice_has_one_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "s.db"
    file.touch()
    at = file.stat()
    place = f"{os.major(at.st_dev):02x}:{os.minor(at.st_dev):02x}:{at.st_ino}"
    (tmp_path / "locks").write_text(
        f"1: POSIX ADVISORY WRITE 4711 {place} 120 120\n"
        f"2: POSIX ADVISORY READ 12 {place} 124 124\n"
        f"3: POSIX ADVISORY WRITE 4711 {place} 120 120\n"
    )
    monkeypatch.setattr(lock_holder, "_PROC", tmp_path)
    expected = "process 4711 (its program is not known)"
    assert lock_holder.holder_of_byte(file, 120) == expected
    assert lock_holder.holder_of_byte(file, 124) is None
