"""A disk that is full, fails, or is read-only: the errors, and what remains."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from perdure.codecs.operator.codec import OPERATOR
from perdure.codecs.pi.codec import PI
from perdure.errors import StoreFull, StoreReadOnly, StoreUnavailable
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId, blob_hash
from perdure.session.messages import MediaPart, user
from perdure.stores.jsonl.disk.feed import Feed
from perdure.stores.jsonl.disk.folder import Folder
from perdure.stores.jsonl.retention.content_gc import LOCK as CONTENTS
from perdure.stores.jsonl.retention.content_gc import remove_unreferenced
from perdure.stores.jsonl.retention.limits import KEYS
from perdure.stores.jsonl.session_index import SessionIndex
from perdure.stores.jsonl.store import DialectName, JsonlStore
from perdure.stores.protocol import Commit, Durability, Write
from perdure.stores.retention.quotas import Quota
from tests.conformance.store.building import append, create, erasure, header, said, texts
from tests.fakes.clock import START_MS
from tests.fakes.faulty_files import Operation, failing_at, planned, syncs_in
from tests.fakes.session_files import file_of, files_below
from tests.integration.jsonl.conftest import Opener

S = StreamId("s")

ERRORS = {
    errno.ENOSPC: StoreFull,
    errno.EDQUOT: StoreFull,
    errno.EROFS: StoreReadOnly,
    errno.EACCES: StoreReadOnly,
    errno.EIO: StoreUnavailable,
}


@pytest.mark.parametrize("kept", [0.0, 0.4, 0.99])
@pytest.mark.parametrize("error", ERRORS)
async def test_failed_write_is_rejected_and_the_next_write_succeeds(
    store: JsonlStore, error: int, kept: float
) -> None:
    await create(store, S, said("before"))

    with planned(failing_at(1, error, "write", kept)), pytest.raises(ERRORS[error]):
        await append(store, S, said("lost"), said("lost too"))

    assert texts(await store.entries(S)) == ["before"]
    (entry,) = await append(store, S, said("after"))
    assert entry.seq == 1
    assert (await store.maintenance.verify()).problems == ()


async def test_session_with_failed_creation_does_not_exist(store: JsonlStore, folder: Path) -> None:
    for operation in ("write", "link"):
        with planned(failing_at(1, errno.ENOSPC, operation)), pytest.raises(StoreFull):
            await create(store, S, said("lost"))

    assert files_below(folder, "*.jsonl") == []
    await create(store, S, said("made"))
    assert texts(await store.entries(S)) == ["made"]


async def test_failed_fsync_reports_unknown_outcome(open_store: Opener) -> None:
    store = await open_store(durability="full")
    await create(store, S, said("before"))

    with planned(failing_at(1, errno.EIO, "fsync")), pytest.raises(StoreUnavailable):
        await append(store, S, said("perhaps"), key="k")

    again = await append(store, S, said("perhaps"), key="k")
    assert texts(await store.entries(S)) == ["before", "perhaps"]
    assert again == (await store.entries(S))[1:]
    assert (await store.maintenance.verify()).problems == ()


async def test_failed_content_write_rejects_commit(store: JsonlStore) -> None:
    await create(store)
    write = Write(stream=S, entries=(said("with it"),))

    with planned(failing_at(1, errno.ENOSPC, "write", 0.5)), pytest.raises(StoreFull):
        await store.commit(Commit(writes=(write,), at=1, blobs=(b"content",)))

    assert await store.entries(S) == []
    assert (await store.maintenance.verify()).problems == ()
    assert (await store.info()).payload_bytes == 0


async def test_first_commit_syncs_the_new_file_and_its_folder(
    open_store: Opener,
) -> None:
    synced: list[int] = []
    store = await open_store(durability="full")

    with planned(lambda operation, _: synced.append(1) if operation == "fsync" else None):
        await create(store, header("s"), said("a"))
        made = len(synced)
        await append(store, S, said("b"))

    assert (made, len(synced)) == (2, 3)  # the file and its folder; then the file alone


def test_feed_with_a_second_name_on_a_full_disk_reports_the_full_disk(folder: Path) -> None:
    place = Folder(folder, is_synced=False)
    place.make()
    feed = Feed(place)
    feed.lose(S, range(1))
    os.link(feed.path, folder / "other")
    with planned(failing_at(1, errno.ENOSPC, "replace")), pytest.raises(StoreFull):
        feed.lose(StreamId("t"), range(1))


def test_record_of_lost_entries_is_synced(folder: Path) -> None:
    place = Folder(folder, is_synced=True)
    place.make()
    feed, synced = Feed(place), list[int]()
    with planned(syncs_in(synced)):
        feed.lose(S, range(1))
    assert synced == [feed.path.stat().st_ino]


def test_feed_gives_no_positions_to_a_session_whose_file_was_removed(folder: Path) -> None:
    place = Folder(folder, is_synced=False)
    place.make()
    feed, path = Feed(place), folder / "s.jsonl"
    feed.extend(S, 0, path, is_lossy=False)
    assert feed.by_stream() == {}
    path.write_bytes(b"")
    feed.extend(S, 0, path, is_lossy=False)
    assert [span.length for span in feed.by_stream()[S]] == [1]


def test_removal_of_a_session_file_is_synced(folder: Path) -> None:
    place = Folder(folder, is_synced=True)
    place.make()
    path, synced = place.create("s.jsonl", b"text"), list[int]()
    assert path is not None
    with planned(syncs_in(synced)):
        place.remove(path)
    assert synced == [folder.stat().st_ino]


@pytest.mark.parametrize("durability", ["normal", "full"])
async def test_removed_quota_is_gone_after_a_power_cut(
    open_store: Opener, folder: Path, durability: Durability
) -> None:
    store = await open_store(durability=durability)
    await store.retention.set_quota(Quota(max_sessions=1))
    synced: list[int] = []
    with planned(syncs_in(synced)):
        await store.retention.set_quota(Quota())
        await store.retention.set_quota(Quota())
    assert synced == [(folder / ".perdure" / "limits").stat().st_ino]


async def test_quota_that_cannot_be_removed_is_reported(store: JsonlStore) -> None:
    await store.retention.set_quota(Quota(max_sessions=1))
    with planned(failing_at(1, errno.EROFS, "unlink")), pytest.raises(StoreReadOnly):
        await store.retention.set_quota(Quota())
    assert (await store.retention.quota())[0] == Quota(max_sessions=1)


def keep_contents(operation: Operation, args: tuple[object, ...]) -> None:
    if operation == "unlink" and "sha256-" in str(args[0]):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def showing(stream: str, content: bytes) -> Commit:
    part = MediaPart("image/png", f"media://{blob_hash(content)}", len(content))
    new = (new_tree(user("look", part)),)
    write = Write(stream=StreamId(stream), create=header(stream), entries=new)
    return Commit(writes=(write,), at=START_MS, blobs=(content,))


async def test_content_that_is_used_again_during_an_erasure_is_kept(open_store: Opener) -> None:
    """An erasure is interrupted after it found that nothing else refers to the content."""
    store, content = await open_store(), b"\x89PNG of two"
    await store.commit(showing("s", content))
    request = erasure("s")
    with planned(keep_contents), pytest.raises(StoreUnavailable):
        await store.retention.erase(request)

    await store.commit(showing("t", content))
    again = await open_store()

    assert [each.is_complete for each in await again.retention.erasures()] == [True]
    assert await again.blob(blob_hash(content)) == content
    assert (await again.maintenance.verify()).problems == ()


async def test_vacuum_deletes_no_content_while_session_is_damaged(
    store: JsonlStore, folder: Path
) -> None:
    content = b"\x89PNG"
    await store.commit(showing("s", content))
    path = file_of(folder, "s")
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    assert (await store.maintenance.vacuum()).blobs == 0
    path.write_bytes(whole)
    assert await store.blob(blob_hash(content)) == content


async def test_erasure_keeps_content_shared_with_a_session_of_a_newer_version(
    open_store: Opener, folder: Path
) -> None:
    store, content = await open_store(), b"\x89PNG"
    for stream in ("s", "t"):
        await store.commit(showing(stream, content))
    path = file_of(folder, "t")
    path.write_bytes(path.read_bytes().replace(b'"perdure":{', b'"perdure":{"format":99,'))

    store = await open_store()
    assert (await store.maintenance.vacuum()).blobs == 0
    assert (await store.retention.erase(erasure("s"))).is_complete
    assert await store.blob(blob_hash(content)) == content


async def test_two_concurrent_vacuums_remove_each_content_once(open_store: Opener) -> None:
    store, other = await open_store(), await open_store()
    contents = tuple(b"%d" % number for number in range(300))
    left = Write(stream=S, create=header("s"))
    await store.commit(Commit(writes=(left,), at=START_MS, blobs=contents))

    done = await asyncio.gather(store.maintenance.vacuum(), other.maintenance.vacuum())

    assert sum(each.blobs for each in done) == 300
    assert (await store.maintenance.verify()).problems == ()


async def test_vacuum_that_waits_for_a_lock_reports_removed_contents(
    open_store: Opener, folder: Path
) -> None:
    store, content = await open_store(), b"content"
    left = Write(stream=S, create=header("s"))
    await store.commit(Commit(writes=(left,), at=START_MS, blobs=(content,)))
    with Folder(folder, is_synced=False).hold_lock(KEYS, ""):
        vacuum = asyncio.ensure_future(store.maintenance.vacuum())
        async with asyncio.timeout(60):
            while files_below(folder, blob_hash(content)):  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)  # it tries to acquire the lock meanwhile
    assert (await vacuum).blobs == 1


async def test_vacuum_keeps_content_that_is_referenced_after_its_scan(
    open_store: Opener, folder: Path, dialect: DialectName
) -> None:
    store, content = await open_store(), b"content"
    left = Write(stream=S, create=header("s"))
    await store.commit(Commit(writes=(left,), at=START_MS, blobs=(content,)))

    class Raced(Folder):
        def hold_lock(
            self, kind: str, name: str, *, is_shared: bool = False, wait_s: float | None = None
        ) -> AbstractContextManager[None]:
            if kind == CONTENTS:  # another process was first
                (folder / "other.jsonl").write_text(f"{blob_hash(content)}\n")
            return super().hold_lock(kind, name, is_shared=is_shared, wait_s=wait_s)

    codec = PI if dialect == "pi" else OPERATOR
    assert remove_unreferenced(SessionIndex(Raced(folder, is_synced=False), codec)) == []
    assert await store.blob(blob_hash(content)) == content


async def test_erasure_that_waits_for_a_lock_has_changed_nothing(
    open_store: Opener, folder: Path
) -> None:
    store = await open_store()
    await create(store, S, said("a"))
    with Folder(folder, is_synced=False).hold_lock("stream", S):
        erasing = asyncio.ensure_future(store.retention.erase(erasure("s")))
        await asyncio.sleep(0.2)  # it tries to acquire the lock meanwhile
        async with asyncio.timeout(10):
            assert await store.retention.erasures() == []
    assert (await erasing).is_complete
