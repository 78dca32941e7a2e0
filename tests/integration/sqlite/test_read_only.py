"""A store that can be read but not written: a mounted backup, another user's file."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.streams import create, say
from tests.integration.sqlite.conftest import Opener

CHILD = Path(__file__).parent / "children" / "read_only.py"


@pytest.fixture
def path() -> Iterator[Path]:
    """A file in a folder that other users can enter, unlike pytest's own folders."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-read-only-"))
    folder.chmod(0o755)
    yield folder / "sessions.db"
    folder.chmod(0o755)
    shutil.rmtree(folder)


def lock(path: Path) -> None:
    """Remove the write permission of all users."""
    for file in path.parent.iterdir():
        file.chmod(0o444)
    path.parent.chmod(0o555)


def forbid(path: Path) -> None:
    path.chmod(0o000)


def as_reader(path: Path) -> list[str]:
    """Run the child as a user without write permission; return the result of each attempt."""
    child = subprocess.run(
        [sys.executable, str(CHILD), str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return child.stdout.split()


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


async def test_store_on_a_read_only_medium_can_be_read(open_store: Opener, path: Path) -> None:
    store = await open_store()
    await create(store)
    await say(store, "one", "two")
    await store.close()
    lock(path)
    before = contents(path.parent)

    assert as_reader(path) == ["2", "True", "store_read_only"]
    assert contents(path.parent) == before


async def test_store_written_by_another_process_can_be_read(open_store: Opener, path: Path) -> None:
    store = await open_store()
    await create(store)
    await say(store, "one")
    lock(path)

    assert as_reader(path) == ["1", "True", "store_read_only"]


def test_store_cannot_be_created_in_a_read_only_folder(path: Path) -> None:
    lock(path)

    assert as_reader(path) == ["store_read_only"]


def test_store_cannot_be_created_below_read_only_folder(path: Path) -> None:
    lock(path)

    assert as_reader(path.parent / "new" / path.name) == ["store_read_only"]


def test_store_in_a_folder_without_search_permission_is_reported(path: Path) -> None:
    path.parent.chmod(0o600)

    assert as_reader(path) == ["store_read_only"]
    assert as_reader(path.parent / "new" / path.name) == ["store_read_only"]


async def test_unreadable_file_is_reported(open_store: Opener, path: Path) -> None:
    await create(await open_store())
    forbid(path)

    assert as_reader(path) == ["store_unavailable"]
