"""Unsent text stays stored after its process ends."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import perdure
from perdure.apps.chat.history import Drafts, drafts_of

ENDED = 2**22 + 1
"""A process id that does not exist: Linux assigns none above 2**22."""


def test_input_draft_of_an_ended_process_is_restored_once(tmp_path: Path) -> None:
    folder = tmp_path / "perdure" / "drafts"
    Drafts(folder, "store", ENDED).keep("s1", "half a thought\n  indented \N{SNOWMAN}")
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert "s1" not in file.name
    ours = Drafts(folder, "store", os.getpid())
    assert ours.take("s2") == Drafts(folder, "other store", 1).take("s1") == ""
    assert ours.take("s1") == "half a thought\n  indented \N{SNOWMAN}"
    assert ours.take("s1") == ""


def test_input_draft_of_a_running_process_is_not_restored(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    Drafts(tmp_path, "store", child.pid).keep("s", "mine")
    ours = Drafts(tmp_path, "store", os.getpid())
    assert ours.take("s") == ""
    child.communicate(b"\n")
    assert ours.take("s") == "mine"


def test_input_drafts_of_several_processes_are_restored_together(tmp_path: Path) -> None:
    for number, text in enumerate(("older", "newer", "known")):
        Drafts(tmp_path, "store", ENDED + number).keep("s", text)
        (file,) = tmp_path.glob(f"*.{ENDED + number}")
        os.utime(file, (time.time(), time.time() - 10 + number))
    ours = Drafts(tmp_path, "store", os.getpid())
    assert ours.take("s", "known") == "older\nnewer"
    assert ours.take("s") == ""


def test_saving_empty_text_removes_the_draft(tmp_path: Path) -> None:
    drafts = Drafts(tmp_path / "new", "store", os.getpid())
    assert drafts.take("s") == ""
    drafts.keep("s", "")
    drafts.keep("s", "text")
    drafts.keep("s", " \n")
    assert list((tmp_path / "new").iterdir()) == []


def test_old_drafts_are_removed_and_invalid_files_are_ignored(tmp_path: Path) -> None:
    drafts = Drafts(tmp_path, "store", ENDED)
    drafts.keep("s", "text")
    (file,) = tmp_path.iterdir()
    os.mkfifo(file.with_suffix(f".{ENDED + 1}"))
    os.utime(file, (file.stat().st_atime, file.stat().st_mtime - 1))
    assert drafts.take("s") == "text"
    drafts.keep("s", "text")
    os.utime(file, (0, 0))
    assert drafts.take("s") == ""


def test_draft_folder_that_cannot_be_created_causes_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    drafts = Drafts(tmp_path / "file", "store", os.getpid())
    drafts.keep("s", "text")
    assert drafts.take("s") == ""


async def test_input_draft_is_not_saved_for_encrypted_or_in_memory_stores(tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path)}
    async with perdure.open("memory:") as store:
        assert await drafts_of(store, state) is None
    async with perdure.open(f"sqlite:///{tmp_path}/e.db", key=bytes(range(32))) as store:
        assert await drafts_of(store, state) is None
    async with perdure.open(f"sqlite:///{tmp_path}/p.db") as store:
        drafts = await drafts_of(store, state)
        assert drafts is not None
        drafts.keep("s", "text")
    assert len(list((tmp_path / "perdure" / "drafts").iterdir())) == 1
