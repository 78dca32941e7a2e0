"""A file appears and is replaced in one step, after its content is synced."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure.apps.chat.history import Drafts
from perdure.apps.maintenance.backup import back_up
from perdure.client.open import open as open_store
from perdure.client.trust import TrustFolder
from perdure.engine.flows.files.runtime_files import replace_file
from perdure.models.keys import write_key_file
from perdure.session.ids import StreamId
from perdure.stores.fsync import replace_private
from perdure.stores.jsonl.disk.folder import Folder
from perdure.stores.jsonl.disk.sidefiles import HeldLease, put_blob, put_lease
from perdure.stores.sqlite.files.creation import create_store
from perdure.stores.sqlite.maintenance.file_swap import (
    exchange,
    put_in_place,
    put_where_nothing_is,
)
from perdure.tools.builtin import edits
from perdure.tools.paths.jail import Place
from tests.fakes.faulty_files import Operation, planned, syncs_in
from tests.fakes.samples import case
from tests.fakes.tool_calls import Tools

Write = Callable[[Path, str], None]
"""Writes a text to a file below a folder, the only file that remains there."""


class Steps:
    """A plan for `planned`: the content of `file` before each operation, and the synced files.

    `synced` has the inode and size of each file that was synced while `file` still had its
    first content. `synced_after` has the inode of each folder that was synced after that.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._old = self._content()
        self.contents: set[bytes | None] = set()
        self.synced: set[tuple[int, int]] = set()
        self.synced_after: set[int] = set()

    def __call__(self, operation: Operation, args: tuple[Any, ...]) -> None:
        content = self._content()
        self.contents.add(content)
        if operation != "fsync":
            return
        status = os.fstat(args[0])
        if content == self._old:
            self.synced.add((status.st_ino, status.st_size))
        elif stat.S_ISDIR(status.st_mode):
            self.synced_after.add(status.st_ino)

    def _content(self) -> bytes | None:
        return self._file.read_bytes() if self._file.exists() else None


def sessions(folder: Path) -> Folder:
    found = Folder(folder, is_synced=True)
    found.make()
    return found


def lease(folder: Path, text: str) -> None:
    put_lease(sessions(folder), StreamId("s"), HeldLease(text))


def feed(folder: Path, text: str) -> None:
    sessions(folder).put_beside(folder / "file", text.encode())


def private(folder: Path, text: str) -> None:
    replace_private(folder / "file", text.encode())


def key(folder: Path, text: str) -> None:
    write_key_file(folder / "file", text)


def database(folder: Path, text: str) -> None:
    (folder / "new").write_text(text)
    put_in_place(folder / "new", folder / "file")


def edited(folder: Path, text: str) -> None:
    descriptor, file = os.open(folder, os.O_RDONLY), folder / "file"
    place = Place(descriptor, "file", has_walls=False, path=str(file))
    try:
        edits.replace(place, text.encode(), file.lstat() if file.exists() else None)
    finally:
        os.close(descriptor)


def flow_file(folder: Path, text: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        replace_file(descriptor, "file", "draft", text.encode(), 0o600)
    finally:
        os.close(descriptor)


def unsent(folder: Path, text: str) -> None:
    Drafts(folder, "store", 1).keep("s", text)


SYNCED: tuple[Write, ...] = (lease, private, key, database, edited)
UNSYNCED: tuple[Write, ...] = (feed, flow_file, unsent)
WITH_FOLDER: tuple[Write, ...] = (lease, private, database, edited)
"""The writes that promise that the file is on the disk under its name."""


def file_below(folder: Path) -> Path:
    (file,) = (each for each in folder.rglob("*") if each.is_file())
    return file


def test_replaced_file_is_whole_at_each_step(tmp_path: Path) -> None:
    for write in (*SYNCED, *UNSYNCED):
        with case(write.__name__):
            folder = tmp_path / write.__name__
            folder.mkdir()
            write(folder, "old")
            file = file_below(folder)
            steps, old, inode = Steps(file), file.read_bytes(), file.stat().st_ino
            with planned(steps):
                write(folder, "newer")
            status = file.stat()
            assert steps.contents <= {old, file.read_bytes()}
            assert old in steps.contents
            assert status.st_ino != inode
            assert write in UNSYNCED or (status.st_ino, status.st_size) in steps.synced
            assert write not in WITH_FOLDER or file.parent.stat().st_ino in steps.synced_after


def session_file(folder: Path, text: str) -> None:
    sessions(folder).create("file", text.encode())


def content(folder: Path, text: str) -> None:
    put_blob(sessions(folder), text.encode())


def restored(folder: Path, text: str) -> None:
    (folder / "new").write_text(text)
    put_where_nothing_is(folder / "new", folder / "file")


def test_created_file_appears_with_synced_content(tmp_path: Path) -> None:
    for write in (session_file, content, restored):
        with case(write.__name__):
            example, folder = tmp_path / f"{write.__name__}-example", tmp_path / write.__name__
            example.mkdir()
            folder.mkdir()
            write(example, "text")
            file = folder / file_below(example).relative_to(example)
            steps = Steps(file)
            with planned(steps):
                write(folder, "text")
            status = file.stat()
            assert steps.contents <= {None, b"text"}
            assert (status.st_ino, status.st_size) in steps.synced
            assert file.parent.stat().st_ino in steps.synced_after


def test_new_folder_of_side_files_is_synced_with_its_first_file(tmp_path: Path) -> None:
    folder = sessions(tmp_path)
    kept = folder.inner / "limits" / "file"
    assert not kept.parent.exists()
    synced: list[int] = []
    with planned(syncs_in(synced)):
        folder.put(kept, b"text", is_synced=True)
    assert {folder.inner.stat().st_ino, kept.parent.stat().st_ino} <= {*synced}


def session_folder(root: Path) -> None:
    Folder(root, is_synced=True).make()


def store_file(root: Path) -> None:
    create_store(root / "store.db", lambda: b"seed", None)


def test_new_folder_of_a_store_is_synced_with_its_parents(tmp_path: Path) -> None:
    for make in (session_folder, store_file):
        with case(make.__name__):
            above = tmp_path / make.__name__ / "a"
            synced: list[int] = []
            with planned(syncs_in(synced)):
                make(above / "store")
            parents = (tmp_path, above.parent, above, above / "store")
            assert {each.stat().st_ino for each in parents} <= {*synced}


def test_replaced_store_is_kept_on_the_disk_before_its_log_is_removed(tmp_path: Path) -> None:
    path, new, aside = tmp_path / "store.db", tmp_path / "new", tmp_path / "aside"
    path.write_text("old")
    new.write_text("new")
    (tmp_path / "store.db-wal").write_text("log")
    done: list[tuple[Operation, object]] = []

    def plan(operation: Operation, args: tuple[Any, ...]) -> None:
        of = os.fstat(args[0]).st_ino if operation == "fsync" else Path(args[0]).name
        done.append((operation, of))

    with planned(plan):
        exchange(new, path, aside, site=None)
    kept = {(aside / name).read_text() for name in ("store.db", "store.db-wal")}
    assert (kept, path.read_text()) == ({"old", "log"}, "new")
    log_removed, renamed = done.index(("unlink", "store.db-wal")), done.index(("replace", "new"))
    folder = ("fsync", tmp_path.stat().st_ino)
    before = (aside.stat().st_ino, (aside / "store.db-wal").stat().st_ino)
    assert {folder, *(("fsync", each) for each in before)} <= {*done[:log_removed]}
    assert folder in done[log_removed:renamed]
    assert folder in done[renamed:]


async def test_backup_appears_with_synced_files(tmp_path: Path) -> None:
    address, folder = f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "backup"
    async with open_store(address) as opened:
        await opened.create(id="s")
    steps = Steps(folder / "manifest.json")
    with planned(steps):
        await back_up(address, folder)
    files = [each.stat() for each in folder.iterdir()]
    assert len(files) == 2
    assert {(each.st_ino, each.st_size) for each in files} <= steps.synced
    assert folder.stat().st_ino in {inode for inode, _ in steps.synced}
    assert folder.parent.stat().st_ino in steps.synced_after


async def test_appended_text_is_synced(tmp_path: Path) -> None:
    file = tmp_path / "log"
    synced: set[int] = set()
    with planned(
        lambda name, args: synced.add(os.fstat(args[0]).st_size) if name == "fsync" else None
    ):
        for _ in range(2):
            await Tools(tmp_path).run(edits.write_file, path="log", content="x\n", append=True)
    assert file.read_text() == "x\nx\n"
    assert 4 in synced


async def test_trusted_content_is_synced_with_its_new_folder(tmp_path: Path) -> None:
    folder = tmp_path / "perdure" / "trust"
    synced: set[int] = set()
    with planned(
        lambda name, args: synced.add(os.fstat(args[0]).st_ino) if name == "fsync" else None
    ):
        async with open_store("memory:") as store:
            await store.create(id="s")
            await TrustFolder(folder).trust(store.backend, 1, [StreamId("s")])
    kept = [*folder.iterdir(), folder, folder.parent]
    assert {each.name for each in kept} == {"key", "endorsed", "stores", "trust", "perdure"}
    assert {each.stat().st_ino for each in (*kept, tmp_path)} <= synced
