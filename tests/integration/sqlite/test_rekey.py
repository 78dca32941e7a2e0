"""Another key for a store: requirements, remaining files, and concurrent processes."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
from contextlib import closing
from itertools import count, pairwise
from pathlib import Path

import apsw
import pytest

from perdure.errors import (
    KeyMissing,
    KeyWrong,
    NotAStore,
    StoreFull,
    StoreInUse,
    StoreNotEncrypted,
    StoreUnavailable,
)
from perdure.stores.key import StoreKey
from perdure.stores.sqlite.connections import bare_connection, connection, locate_site
from perdure.stores.sqlite.maintenance.rekey import is_encrypted, rekey
from perdure.stores.sqlite.rekey_copy import copy_held, unfinished_copy
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.faulty_vfs import failing_from, faulty_vfs
from tests.fakes.planted import content_of, plant
from tests.fakes.raw_database import raw_database
from tests.fakes.samples import with_larger
from tests.fakes.streams import S, create, say

FIRST, SECOND = StoreKey(b"\x01" * 32), StoreKey(b"\x02" * 32)
WORD = "canary"
HOLDER = Path(__file__).parent / "children" / "hold.py"


async def opened(path: Path, key: StoreKey | None) -> SqliteStore:
    return await SqliteStore.open(path, clock=ManualClock(), random=SeededRandom(1), key=key)


async def planted(path: Path, key: StoreKey | None) -> bytes:
    """A store with data of every kind, and its readable content."""
    store = await opened(path, key)
    await plant(store, WORD)
    content = await content_of(store, WORD)
    await store.close()
    return content


async def content(path: Path, key: StoreKey | None) -> bytes:
    store = await opened(path, key)
    try:
        assert (await store.maintenance.verify()).problems == ()
        return await content_of(store, WORD)
    finally:
        await store.close()


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def bytes_of(path: Path) -> bytes:
    return path.read_bytes()


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def quietly(_done: int, _total: int) -> None:
    """Ignore the progress."""


@pytest.mark.parametrize(
    ("key", "new_key"), [(None, FIRST), (FIRST, SECOND), (FIRST, None), (FIRST, FIRST)]
)
async def test_rekey_keeps_all_content(
    path: Path, key: StoreKey | None, new_key: StoreKey | None
) -> None:
    before = await planted(path, key)
    assert is_encrypted(path) == (key is not None)

    rekey(path, key, new_key, quietly)

    assert await content(path, new_key) == before
    assert is_encrypted(path) == (new_key is not None)
    assert names_in(path.parent) == [path.name]
    assert mode_of(path) == 0o600
    assert (WORD.encode() in bytes_of(path)) == (new_key is None)
    if key != new_key:
        with pytest.raises((KeyWrong, KeyMissing, StoreNotEncrypted)):
            await opened(path, key)


async def test_first_opening_after_rekey_needs_no_journal(path: Path) -> None:
    """With a journal, a process that has the old file open could replay the journal as its own."""
    await planted(path, None)
    rekey(path, None, FIRST, quietly)
    with closing(bare_connection(locate_site(path, key=FIRST), b"")) as db:
        assert db.pragma("journal_mode") == "wal"


async def test_rekeyed_store_can_be_written(path: Path) -> None:
    await planted(path, None)
    rekey(path, None, FIRST, quietly)

    store = await opened(path, FIRST)
    await create(store)
    await say(store, "hello")
    await store.close()

    store = await opened(path, FIRST)
    assert (await store.state(S)).head == 0
    info = await store.info()
    assert (info.is_encrypted, info.cipher) == (True, "AEGIS-256")
    await store.close()


async def test_rekey_reports_progress_to_the_end(path: Path) -> None:
    store = await opened(path, None)
    await create(store)
    for _ in range(40):
        await say(store, *(f"{number} " * 1_000 for number in range(50)))
    await store.close()
    told: list[tuple[int, int]] = []

    rekey(path, None, FIRST, lambda done, total: told.append((done, total)))

    assert len(told) > 2
    assert all(earlier <= later for earlier, later in pairwise(told))
    assert told[-1][0] == told[-1][1] > 1_000_000


async def test_rekey_with_wrong_key_changes_nothing(path: Path) -> None:
    await planted(path, FIRST)
    before = bytes_of(path)

    with pytest.raises(KeyWrong):
        rekey(path, SECOND, FIRST, quietly)
    with pytest.raises(KeyMissing):
        rekey(path, None, FIRST, quietly)
    assert bytes_of(path) == before
    assert names_in(path.parent) == [path.name]


async def test_rekey_leaves_other_files_unchanged(path: Path) -> None:
    with pytest.raises(NotAStore):
        rekey(path, None, FIRST, quietly)
    write(path, b"dear diary")
    with pytest.raises(NotAStore):
        rekey(path, None, FIRST, quietly)
    assert bytes_of(path) == b"dear diary"


async def test_rekey_of_a_store_open_in_the_same_process_is_rejected(path: Path) -> None:
    before = await planted(path, None)
    store = await opened(path, None)

    with pytest.raises(StoreInUse):
        rekey(path, None, FIRST, quietly)

    assert await content_of(store, WORD) == before
    await store.close()


def refused_while_held(path: Path, key: StoreKey | None) -> None:
    """Check that a rekey fails while another process has the store open.

    After the failed rekey, the other process can still write.
    """
    command = [sys.executable, str(HOLDER), str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.write((key.reveal() if key else "plain") + "\n")
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreInUse) as refused:
            rekey(path, key, SECOND, quietly)
        if Path("/proc/locks").exists():
            named = f"process {holder.pid} ({Path(sys.executable).name} "
            assert str(refused.value).startswith(named)
        holder.stdin.write("go on\n")
        assert holder.stdout.readline() == "written\n"
    assert holder.returncode == 0


def message_while_two_processes_hold(path: Path) -> tuple[str, list[int]]:
    """Return the error of a rekey while two processes have the store open.

    The second result contains the ids of the two processes.
    """
    command, pipe = [sys.executable, str(HOLDER), str(path)], subprocess.PIPE
    with (
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) as first,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) as second,
    ):
        for holder in (first, second):
            assert holder.stdin is not None
            assert holder.stdout is not None
            holder.stdin.write("plain\n")
            assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreInUse) as refused:
            rekey(path, None, SECOND, quietly)
        for holder in (first, second):
            holder.kill()
    return str(refused.value), [first.pid, second.pid]


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="locks cannot be read here")
async def test_rekey_error_lists_all_processes_that_have_the_store_open(
    path: Path,
) -> None:
    await planted(path, None)
    message, pids = message_while_two_processes_hold(path)
    assert message.startswith("processes ")
    assert all(f" {pid} (" in message for pid in pids)
    assert f" have {path} open; end them and try again" in message


@pytest.mark.parametrize("key", [None, FIRST])
async def test_rekey_of_a_store_open_in_another_process_is_rejected(
    path: Path, key: StoreKey | None
) -> None:
    await planted(path, key)
    refused_while_held(path, key)

    before = await content(path, key)
    rekey(path, key, SECOND, quietly)
    assert await content(path, SECOND) == before


async def test_opening_a_file_that_was_encrypted_meanwhile_raises_key_missing(path: Path) -> None:
    await planted(path, None)
    site = locate_site(path, key=None)

    rekey(path, None, FIRST, quietly)
    with pytest.raises(KeyMissing):
        connection(site, b"")


async def test_replaced_file_is_distinguished_from_old_file(path: Path) -> None:
    await planted(path, None)
    site = locate_site(path, key=None)
    with raw_database(path) as db:  # so that the system does not give its number away again
        db.pragma("user_version")
        shutil.copyfile(path, path.with_name("copy.db")).replace(path)

    with pytest.raises(StoreUnavailable, match="replaced"):
        connection(site, b"")


async def test_waiting_writer_cannot_write_to_old_file(path: Path) -> None:
    await planted(path, None)
    with raw_database(path) as waiting:
        rekey(path, None, FIRST, quietly)

        for statement in ("PRAGMA journal_mode = WAL", "DELETE FROM entry"):
            with pytest.raises(apsw.ReadOnlyError):
                waiting.execute(statement)


async def test_full_disk_during_rekey_keeps_store_without_copy(path: Path) -> None:
    before = await planted(path, FIRST)
    with faulty_vfs() as layer:
        layer.plan = failing_from(20, apsw.FullError, "write")
        with pytest.raises(StoreFull):
            rekey(path, FIRST, SECOND, quietly)

    assert not unfinished_copy(path).exists()
    assert await content(path, FIRST) == before


async def test_leftover_copy_of_killed_rekey_is_overwritten(path: Path) -> None:
    before = await planted(path, None)
    write(unfinished_copy(path), b"half a copy")

    rekey(path, None, FIRST, quietly)

    assert await content(path, FIRST) == before
    assert not unfinished_copy(path).exists()


@pytest.mark.parametrize("key", [None, FIRST])
async def test_opening_removes_copy_of_killed_rekey(path: Path, key: StoreKey | None) -> None:
    await planted(path, key)
    copy = unfinished_copy(path)
    for end in ("", "-wal", "-shm", "-journal"):
        write(copy.with_name(copy.name + end), b"half a copy")

    await (await opened(path, key)).close()

    assert names_in(path.parent) == [path.name]


async def test_opening_without_the_key_removes_the_plain_copy(path: Path) -> None:
    await planted(path, FIRST)
    write(unfinished_copy(path), b"plain words")
    with pytest.raises(KeyMissing):
        await opened(path, None)
    assert names_in(path.parent) == [path.name]


async def test_opening_keeps_copy_of_running_rekey(path: Path) -> None:
    await planted(path, FIRST)
    with copy_held(path) as copy:
        await (await opened(path, FIRST)).close()
        assert copy.exists()
    await (await opened(path, FIRST)).close()
    assert not copy.exists()


async def test_symlink_to_store_stays_a_symlink_after_rekey(path: Path) -> None:
    before = await planted(path, None)
    link = path.with_name("link.db")
    link.symlink_to(path)

    rekey(link, None, FIRST, quietly)

    assert link.is_symlink()
    assert await content(link, FIRST) == await content(path, FIRST) == before


@pytest.mark.all_only
@pytest.mark.parametrize("step", with_larger(5, 1))
async def test_disk_failure_during_rekey_keeps_store_and_hides_keys(path: Path, step: int) -> None:
    before = await planted(path, FIRST)
    failures = 0
    for number in count(1, step):
        with faulty_vfs() as layer:
            layer.plan = failing_from(number, apsw.IOError)
            error = error_of_rekey(path)
        if error is None:
            break
        failures += 1
        assert not tells_a_key(error)
        assert await content(path, FIRST) == before
        assert not unfinished_copy(path).exists()
    assert failures * step > 10
    assert await content(path, SECOND) == before


def error_of_rekey(path: Path) -> StoreUnavailable | None:
    try:
        rekey(path, FIRST, SECOND, quietly)
    except StoreUnavailable as error:
        return error
    return None


def tells_a_key(error: BaseException | None) -> bool:
    """Return whether the error, or a cause of the error, contains a key."""
    keys = (FIRST.reveal(), SECOND.reveal())
    while error is not None:
        told = f"{error!r} {error} {vars(error)}"
        if any(key in told for key in keys):
            return True
        error = error.__cause__ or error.__context__
    return False
