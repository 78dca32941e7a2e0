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


def test_secret_at_the_cut_of_a_command_line_is_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "s.db"
    file.touch()
    at = file.stat()
    place = f"{os.major(at.st_dev):02x}:{os.minor(at.st_dev):02x}:{at.st_ino}"
    (tmp_path / "locks").write_text(f"1: POSIX ADVISORY WRITE 4711 {place} 120 120\n")
    (tmp_path / "4711").mkdir()
    words = ("/usr/bin/agent", "x" * 40, "sk-ant-api03-" + "Zx9Qw3Lm7Vb2Nc8K" * 3, "")
    (tmp_path / "4711" / "cmdline").write_text("\0".join(words))
    monkeypatch.setattr(lock_holder, "_PROC", tmp_path)
    expected = f"process 4711 (agent {'x' * 40} [redacted])"
    assert lock_holder.holder_of_byte(file, 120) == expected
