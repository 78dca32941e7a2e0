"""Verify reports values that were changed directly in the file, without the store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from perdure.secrets import mask
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import Sibling
from perdure.session.ids import EntryId, StreamId, blob_hash
from perdure.session.info import ForkPoint, StreamHeader
from perdure.session.kinds import Compaction, ModelChange
from perdure.session.messages import assistant, user
from perdure.session.notes import LeafMoved
from perdure.stores.protocol import Commit, Verification, Write
from perdure.stores.session_store import SessionStore
from tests.fakes.raw_database import raw_database
from tests.fakes.samples import case
from tests.fakes.streams import S, append, create
from tests.integration.sqlite.conftest import Opener

FORK = StreamId("f")


def entry(seq: int) -> EntryId:
    return EntryId(f"{S}/{seq}")


async def filled(store: SessionStore) -> None:
    """Create two branches, a compaction, a model change, a fork, an alias and a blob."""
    await create(store)
    await append(store, new_tree(user("one"), alias="foreign"), new_tree(assistant("two")))
    await append(store, new_tree(ModelChange("x:y")), new_tree(user("three"), entry(0)))
    await append(store, new_tree(Compaction("short", entry(3))), new_tree(assistant("four")))
    await append(store, new_side(LeafMoved(entry(1))), new_tree(user("five")))
    header = StreamHeader(FORK, 1, fork=ForkPoint(S, entry(5), 7, "path"))
    write = Write(stream=FORK, create=header, entries=(new_tree(user("on")),))
    await store.commit(Commit(writes=(write,), at=1, blobs=(b"bytes",)))


async def verified(open_store: Opener, path: Path, *alterations: str) -> Verification:
    await filled_file(open_store)
    return await verified_after(open_store, path, *alterations)


async def filled_file(open_store: Opener) -> None:
    """Fill the store, and close it."""
    store = await open_store()
    await filled(store)
    assert (await store.maintenance.verify()).problems == ()
    await store.close()


def copied(path: Path, number: int) -> Path:
    return Path(shutil.copyfile(path, path.with_name(f"{number}.db")))


async def verified_after(open_store: Opener, path: Path, *alterations: str) -> Verification:
    """Change the closed store at `path`, and verify it."""
    with raw_database(path) as db:
        for sql in alterations:
            altered = db.execute(sql + " RETURNING 1").fetchone()
            assert altered is not None
    store = await open_store(path)
    verification = await store.maintenance.verify()
    await store.close()
    return verification


async def test_verify_of_an_unchanged_store_finds_no_problem(
    open_store: Opener, path: Path
) -> None:
    verification = await verified(open_store, path)

    assert verification.is_ok
    assert (verification.streams, verification.entries) == (2, 9)


CHANGED_COLUMNS = (
    ("body", "x'7b7d'"),
    ("at", "at + 1"),
    ("kind", "6"),
    ("v", "2"),
    ("salt", "x'00'"),
    ("digest", "zeroblob(32)"),
    ("ref", "0"),
    ("ref", "4711"),
    ("run", "1"),
    ("depth", "7"),
    ("messages", "7"),
    ("state", "1"),
)


async def test_changed_entry_is_reported(open_store: Opener, path: Path) -> None:
    await filled_file(open_store)
    assert (await verified_after(open_store, copied(path, len(CHANGED_COLUMNS)))).problems == ()
    for number, (column, value) in enumerate(CHANGED_COLUMNS):
        copy = copied(path, number)
        with case((column, value)):
            alteration = f"UPDATE entry SET {column} = {value} WHERE stream = 1 AND seq = 5"
            verification = await verified_after(open_store, copy, alteration)

            named = {problem.seq for problem in verification.problems if problem.stream == S}
            # The chain is one hash a commit: a header is found by its commit, which began at 4.
            assert named & {4, 5}
            assert 3 not in named


async def test_changed_entry_body_is_reported_as_one_problem(
    open_store: Opener, path: Path
) -> None:
    verification = await verified(
        open_store, path, "UPDATE entry SET body = x'7b7d' WHERE stream = 1 AND seq = 1"
    )

    assert [(problem.stream, problem.seq) for problem in verification.problems] == [(S, 1)]


CHANGED_ROWS = (
    "UPDATE stream SET hash = zeroblob(32) WHERE no = 1",
    "UPDATE stream SET head = 6 WHERE no = 1",
    "UPDATE stream SET leaf = 1 WHERE no = 1",
    "UPDATE stream SET tip = 1 WHERE no = 1",
    "UPDATE stream SET open_turn = 1 WHERE no = 1",
    "UPDATE stream SET messages = 1 WHERE no = 1",
    "UPDATE stream SET title = 'another' WHERE no = 1",
    "UPDATE stream SET updated_at = 1 WHERE no = 1",
    """UPDATE birth SET header = CAST('{"id":"s","created_at":2}' AS BLOB) WHERE stream = 1""",
    "UPDATE birth SET genesis = zeroblob(32) WHERE stream = 1",
    "UPDATE birth SET header = x'7b' WHERE stream = 1",
    "DELETE FROM commits WHERE first = 1",
    "UPDATE commits SET hash = zeroblob(32) WHERE first = 3",
    "UPDATE commits SET at = 1 WHERE first = 3",
    "UPDATE commits SET epoch = 1 WHERE first = 3",
    "UPDATE commits SET count = 1 WHERE first = 3",
    "UPDATE state SET compaction = 1",
    "UPDATE alias SET seq = 99",
    "DELETE FROM entry WHERE stream = 1 AND seq = 2",
    "UPDATE kind SET name = 'custom_messages' WHERE no = 1",
)


async def test_verify_reports_the_session_of_every_changed_row(
    open_store: Opener, path: Path
) -> None:
    await filled_file(open_store)
    assert (await verified_after(open_store, copied(path, len(CHANGED_ROWS)))).problems == ()
    for number, alteration in enumerate(CHANGED_ROWS):
        copy = copied(path, number)
        with case(alteration):
            verification = await verified_after(open_store, copy, alteration)

            assert S in {problem.stream for problem in verification.problems}


async def test_verify_accepts_an_api_key_that_an_older_version_stored(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-ant-api03-" + "Zx9Qw3Lm7Vb2Nc8K" * 3
    with monkeypatch.context() as older:
        older.setattr(mask, "mask_secrets", str)
        store = await open_store()
        await create(store)
        await append(store, new_tree(user(f"use {key} for the test")))
        await store.close()
    store = await open_store()
    kept = (await store.state(S)).info
    assert kept.first_text is not None
    assert kept.first_text.startswith(f"use {key[:20]}")
    assert (await store.maintenance.verify()).problems == ()


async def test_fork_with_changed_origin_is_reported(open_store: Opener, path: Path) -> None:
    verification = await verified(
        open_store, path, "UPDATE birth SET origin_head = 3 WHERE stream = 2"
    )

    assert {problem.stream for problem in verification.problems} == {FORK}


async def test_damaged_blob_is_reported(open_store: Opener, path: Path) -> None:
    verification = await verified(open_store, path, "UPDATE blob SET content = x'00'")

    assert {problem.problem for problem in verification.problems} == {
        f"the content {blob_hash(b'bytes')} is damaged",
        "the count of bytes of contents as they are stored is kept as 5, it should be 1",
    }


async def test_entry_body_missing_without_an_erasure_is_reported(
    open_store: Opener, path: Path
) -> None:
    verification = await verified(
        open_store, path, "UPDATE entry SET salt = NULL, body = x'' WHERE stream = 1 AND seq = 7"
    )

    assert [problem.seq for problem in verification.problems if problem.seq is not None] == [7]


async def test_verify_accepts_entries_that_refer_to_entries_of_the_same_commit(
    open_store: Opener,
) -> None:
    store = await open_store()
    await create(store)
    entries = [new_tree(user(str(n)), Sibling(n // 2) if n else None) for n in range(30)]
    await append(store, *entries)

    assert (await store.maintenance.verify()).problems == ()
