"""A damaged SQLite store: faults are reported, readable data is saved, the original stays."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from perdure.apps.maintenance.repair import repair_store
from perdure.client.open import open as open_store
from perdure.client.store import Store
from perdure.errors import KeyWrong, NotAStore, StoreExists, StoreFull, StoreInUse
from perdure.session.media.inline import media
from perdure.session.messages import assistant, user
from perdure.stores.key import StoreKey
from perdure.stores.maintenance.protocol import RepairReport
from perdure.stores.sqlite.payload.cipher import unlock
from tests.fakes.faulty_files import failing_at, planned
from tests.fakes.raw_database import raw_database
from tests.fakes.samples import ALL_ONLY

KEY = "ab" * 32
PAGE = 4_096
TURNS = 60


async def filled(path: Path, key: str | None = None) -> None:
    async with open_store(f"sqlite:///{path}", key=key, durability="normal") as store:
        for number in range(3):
            session = await store.create(id=f"s{number}", title=f"title {number}")
            for turn in range(TURNS):
                text = f"{number} {turn} " + os.urandom(8).hex() * (turn * 7 % 90)
                await session.append(user(text), assistant(f"answer {text}"))
        first = await store.open("s0")
        large = await first.append(user("large " + "x" * 3 * PAGE))
        await first.branch((await first.path())[5].id)
        await first.append(user("another branch"))
        await first.label(large.id, "large")
        await (await first.fork(at=large.id)).append(user("in the fork"))
        await store.search("answer")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, bytes]:
    """Return the content of the file that `filled` makes, by key."""
    made: dict[str | None, bytes] = {}
    for key in (None, KEY):
        path = tmp_path_factory.mktemp("filled") / "store.db"
        asyncio.run(filled(path, key))
        assert names(path.parent) == {path.name}
        made[key] = path.read_bytes()
    return made


@pytest.fixture
def store_file(stores: dict[str | None, bytes], tmp_path: Path) -> Path:
    return copied(stores, tmp_path / "original.db")


def copied(stores: dict[str | None, bytes], path: Path, key: str | None = None) -> Path:
    path.write_bytes(stores[key])
    return path


def address(path: Path) -> str:
    return f"sqlite:///{path}"


async def bodies(store: Store) -> dict[str, bytes]:
    """Return every entry by its id."""
    backend = store.backend
    return {
        entry.id: entry.body
        for each in await backend.maintenance.segment_states()
        for entry in await backend.entries(each.stream)
    }


async def content(path: Path, key: str | None = None) -> dict[str, bytes]:
    async with open_store(address(path), key=key) as store:
        return await bodies(store)


async def check_repaired(
    path: Path, before: dict[str, bytes], done: RepairReport, key: str | None = None
) -> None:
    """Check that the store is valid and has all original data except the reported losses."""
    lost = {f"{loss.stream}/{loss.seq}" for loss in done.losses if loss.seq is not None}
    async with open_store(address(path), key=key) as store:
        assert (await store.backend.maintenance.verify()).problems == ()
        after = await bodies(store)
    assert before.keys() <= after.keys()
    changed = {id_ for id_, body in before.items() if after[id_] != body}
    assert changed <= lost
    assert len(after) - len(before) <= len({loss.stream for loss in done.losses})


def with_damage(original: Path, path: Path, offset: int, bit: int = 0) -> None:
    content = bytearray(original.read_bytes())
    content[offset] ^= 1 << bit
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def differences(one: Path, other: Path) -> int:
    """Return the bytes in which two files of one size differ."""
    here, there = one.read_bytes(), other.read_bytes()
    assert len(here) == len(there)
    changed = int.from_bytes(here) ^ int.from_bytes(there)
    return len(here) - changed.to_bytes(len(here)).count(0)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def content_of(path: Path) -> bytes:
    return path.read_bytes()


def kinds_of_pages(path: Path) -> dict[str, list[int]]:
    """Map each use of a page in SQLite to its page numbers."""
    found: dict[str, list[int]] = {}
    with raw_database(path) as db:
        for name, kind, page in db.execute("SELECT name, pagetype, pageno FROM dbstat"):
            found.setdefault(f"{name} {kind}", []).append(page)
    return found


def entries_by_position(path: Path) -> dict[int, str]:
    """Map each position in the file to the id of its entry."""
    with raw_database(path) as db:
        entries = "SELECT n, id || '/' || seq FROM entry JOIN stream ON stream = no"
        return dict(db.execute(entries).fetchall())


def readable_entries(path: Path, original: Path, before: dict[str, bytes]) -> set[str]:
    """Return the ids of the entries that SQLite reads one by one, with their original bodies."""
    found = set[str]()
    with raw_database(path) as db:
        for position, id_ in entries_by_position(original).items():
            with suppress(apsw.Error):
                body = "SELECT body FROM entry WHERE n = ?"
                if db.execute(body, (position,)).fetchall() == [(before[id_],)]:
                    found.add(id_)
    return found


async def test_repair_with_a_missing_content_loses_no_entry(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with open_store(address(path)) as store:
        await (await store.create(id="s")).append(user("look", media(b"\x89PNG" * 50, "image/png")))
        before = await bodies(store)
    with raw_database(path) as db:
        db.execute("DELETE FROM blob")

    done = await repair_store(address(path))

    assert [(loss.stream, loss.seq, "not here" in loss.problem) for loss in done.losses] == [
        ("s", 0, True)
    ]
    async with open_store(address(path)) as store:
        assert await bodies(store) == before


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("places", "step"),
    [
        ("body", 3),
        pytest.param("body", 1, marks=ALL_ONLY),
        pytest.param("head", 1, marks=ALL_ONLY),
    ],
)
async def test_flipped_bit_on_every_kind_of_page_is_repaired(
    store_file: Path, tmp_path: Path, places: str, step: int
) -> None:
    before = await content(store_file)
    chance = random.Random(1)
    kinds = kinds_of_pages(store_file)
    assert {"entry leaf", "entry internal", "entry overflow", "stream leaf"} <= kinds.keys()
    damaged = 0
    for kind in list(kinds)[::step]:
        pages = kinds[kind]
        place = 3 if places == "head" else chance.randrange(PAGE - 300, PAGE)
        page = pages[len(pages) // 2]
        path = tmp_path / f"{kind} {place}".replace(" ", "-") / "store.db"
        with_damage(store_file, path, (page - 1) * PAGE + place, chance.randrange(8))
        done = await repair_store(address(path))
        damaged += done.is_damaged
        if not done.is_damaged:
            assert await content(path) == before, (kind, place)
            continue
        await check_repaired(path, before, done)
        assert done.aside is not None
        assert differences(Path(done.aside, path.name), store_file) == 1
    assert damaged * step > 6  # some bits lie in the free space of their page


async def test_repair_of_a_flipped_bit_in_an_entry_body_loses_only_that_body(
    store_file: Path, tmp_path: Path
) -> None:
    before = await content(store_file)
    path = tmp_path / "damaged.db"
    with_damage(store_file, path, content_of(store_file).index(b'"text":"1 30 ') + 9)
    async with open_store(address(store_file)) as store:
        state = await store.backend.state((await store.open("s1")).id)

    done = await repair_store(address(path))

    ((stream, seq),) = {(loss.stream, loss.seq) for loss in done.losses}
    assert (stream, seq) == ("s1", 60)
    assert done.changed == ()
    await check_repaired(path, before, done)
    async with open_store(address(path)) as store:
        backend = store.backend
        kept = await backend.maintenance.read_segment(
            state.header.id, after=state.head, upto=state.head, limit=1
        )
    assert kept.before == state.hash  # the chain is the old one, and goes on


async def test_lost_entries_are_reported_and_other_seqs_are_unchanged(
    store_file: Path, tmp_path: Path
) -> None:
    before = await content(store_file)
    path = tmp_path / "damaged.db"
    path.write_bytes(content_of(store_file))
    with raw_database(path) as db:
        db.execute(
            "DELETE FROM entry WHERE stream = (SELECT no FROM stream WHERE id = 's1') "
            "AND seq IN (0, 31, 119)"
        )
    done = await repair_store(address(path))

    assert [(loss.stream, loss.seq) for loss in done.losses if loss.problem == "it is gone"] == [
        ("s1", 0),
        ("s1", 31),
        ("s1", 119),
    ]
    assert done.changed == ("s1",)
    await check_repaired(path, before, done)
    async with open_store(address(path)) as store:
        session = await store.open("s1")
        assert len(await session.path()) == 2 * TURNS
        assert [hit.stream for hit in await store.search('"1 7"', limit=1)] == ["s1"]


@pytest.mark.parametrize("key", [None, KEY])
async def test_damaged_overflow_page_loses_only_the_entry_on_it(
    stores: dict[str | None, bytes], tmp_path: Path, key: str | None
) -> None:
    path = tmp_path / "store.db"
    copied(stores, path, key)
    before = await content(path, key)
    (large,) = (id_ for id_, body in before.items() if b"large xxx" in body)
    whole = content_of(path)
    with raw_database(path) as db:
        unlock(db, None if key is None else StoreKey.of(key))
        overflow = "SELECT min(pageno) FROM dbstat WHERE name = 'entry' AND pagetype = 'overflow'"
        start = (db.execute(overflow).fetchall()[0][0] - 1) * PAGE
    path.write_bytes(whole[:start] + b"\xff" * PAGE + whole[start + PAGE :])

    done = await repair_store(address(path), key=key)

    lost = {f"{loss.stream}/{loss.seq}" for loss in done.losses if loss.seq is not None}
    assert lost == {large}
    await check_repaired(path, before, done, key)


@pytest.mark.all_only
async def test_repair_keeps_every_entry_that_the_damaged_store_reads(
    store_file: Path, tmp_path: Path
) -> None:
    before = await content(store_file)
    whole, noise = content_of(store_file), random.Random(7).randbytes(PAGE)
    with raw_database(store_file) as db:
        leaves = "SELECT pageno, ncell FROM dbstat WHERE name = 'entry' AND pagetype = 'leaf'"
        cells = dict(db.execute(leaves).fetchall()[2:20:4])
    lost = 0
    for page in cells:
        path = tmp_path / str(page) / "store.db"
        path.parent.mkdir()
        end = page * PAGE
        path.write_bytes(whole[: end - PAGE // 2] + noise[: PAGE // 2] + whole[end:])
        readable = readable_entries(path, store_file, before)

        done = await repair_store(address(path))

        await check_repaired(path, before, done)
        after = await content(path)
        assert {id_ for id_, body in before.items() if after[id_] == body} >= readable
        lost += len(before) - len(readable)
    assert 0 < lost < sum(cells.values())  # some entries of the damaged pages are readable


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
async def test_truncated_file_is_repaired(store_file: Path, tmp_path: Path, share: float) -> None:
    path = tmp_path / "cut.db"
    whole = content_of(store_file)
    path.write_bytes(whole[: int(len(whole) * share)])
    done = await repair_store(address(path))

    assert done.is_damaged
    assert done.losses
    async with open_store(address(path)) as store:
        assert (await store.backend.maintenance.verify()).problems == ()


@pytest.mark.parametrize("left_bytes", [100, PAGE + 900])
async def test_repair_of_a_truncated_file_reports_the_missing_bytes(
    store_file: Path, tmp_path: Path, left_bytes: int
) -> None:
    path = tmp_path / "cut.db"
    whole = content_of(store_file)
    path.write_bytes(whole[:left_bytes])
    done = await repair_store(address(path))

    assert done.streams == 0
    assert [loss.problem for loss in done.losses] == [
        f"the file was cut off: its last {len(whole) - left_bytes:,} bytes are gone"
    ]


async def test_repair_does_not_report_search_settings_as_namespaces(
    store_file: Path, tmp_path: Path
) -> None:
    before = await content(store_file)
    path = tmp_path / "store.db"
    whole = bytearray(content_of(store_file))
    with raw_database(store_file) as db:
        roots = [
            row[0]
            for row in db.execute(
                "SELECT rootpage FROM sqlite_schema WHERE name LIKE '%namespace%' AND rootpage > 0"
            )
        ]
    for root in roots:
        whole[(root - 1) * PAGE : root * PAGE] = bytes(PAGE)
    path.write_bytes(whole)
    done = await repair_store(address(path))

    namespaces = {loss.problem.rpartition(" ")[2] for loss in done.losses if loss.seq is None}
    assert namespaces == {"recovered-1"}
    async with open_store(address(path), namespace="recovered-1") as store:
        assert await bodies(store) == before


async def test_repair_without_the_first_page_loses_no_entry(
    store_file: Path, tmp_path: Path
) -> None:
    before = await content(store_file)
    path = tmp_path / "store.db"
    whole = content_of(store_file)
    path.write_bytes(whole[:100] + bytes(PAGE - 100) + whole[PAGE:])
    done = await repair_store(address(path))

    assert done.losses == ()
    assert await content(path) == before


async def test_repair_without_the_wal_file_gives_a_valid_store(
    tmp_path: Path,
) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy" / "store.db"
    copy.parent.mkdir()
    async with open_store(address(path)) as store:
        session = await store.create(id="s")
        for number in range(20):
            await session.append(user(f"message {number}"))
        copy.write_bytes(path.read_bytes())  # without its log, while it holds everything
    with suppress(NotAStore):  # where not even the schema had been checkpointed
        await repair_store(address(copy))
        async with open_store(address(copy)) as store:
            assert (await store.backend.maintenance.verify()).problems == ()


@pytest.mark.all_only
@pytest.mark.parametrize("step", [61, pytest.param(9, marks=ALL_ONLY)])
async def test_damaged_encrypted_store_is_repaired(
    stores: dict[str | None, bytes], tmp_path: Path, step: int
) -> None:
    original = tmp_path / "original.db"
    copied(stores, original, KEY)
    before = await content(original, KEY)
    pages = original.stat().st_size // PAGE
    damaged = 0
    for page in range(1, pages, step):
        path = tmp_path / str(page) / "store.db"
        with_damage(original, path, page * PAGE + 100)
        done = await repair_store(address(path), key=KEY)
        damaged += done.is_damaged
        if done.is_damaged:
            await check_repaired(path, before, done, KEY)
            assert b"answer" not in content_of(path)
    assert damaged * step > 27


@pytest.mark.parametrize("damage", ["a bit", "all of it", "all but what tells what it is"])
async def test_repair_of_an_encrypted_store_without_the_first_page_loses_no_entry(
    stores: dict[str | None, bytes], tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "store.db"
    copied(stores, path, KEY)
    before = await content(path, KEY)
    whole = content_of(path)
    first = {
        "a bit": whole[:50] + bytes([whole[50] ^ 1]) + whole[51:PAGE],
        "all of it": bytes(PAGE),
        "all but what tells what it is": whole[:24] + bytes(PAGE - 24),
    }[damage]
    path.write_bytes(first + whole[PAGE:])
    done = await repair_store(address(path), key=KEY)

    assert done.is_damaged
    assert done.losses == ()
    assert await content(path, KEY) == before
    assert b"answer" not in content_of(path)


@pytest.mark.parametrize("is_damaged", [False, True])
async def test_repair_with_a_wrong_key_changes_no_file(
    stores: dict[str | None, bytes], tmp_path: Path, *, is_damaged: bool
) -> None:
    path, original = tmp_path / "d" / "store.db", tmp_path / "original.db"
    copied(stores, original, KEY)
    with_damage(original, path, 50, bit=0)
    if not is_damaged:
        path.write_bytes(content_of(original))
    before = content_of(path)
    with pytest.raises(KeyWrong):
        await repair_store(address(path), key="cd" * 32)
    assert content_of(path) == before
    assert names(path.parent) == {"store.db"}


async def test_repair_with_a_key_rejects_a_file_that_is_not_a_store(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("dear reader, " * 1000)
    with pytest.raises(NotAStore):
        await repair_store(address(path), key=KEY)
    assert path.read_text().startswith("dear reader")


async def test_repair_of_valid_sqlite_store_changes_nothing(store_file: Path) -> None:
    before = content_of(store_file)
    done = await repair_store(address(store_file))

    assert not done.is_damaged
    assert content_of(store_file) == before
    assert names(store_file.parent) <= {"original.db", "original.db-wal"}


async def test_repaired_store_can_be_written_to_another_path(
    store_file: Path, tmp_path: Path
) -> None:
    path, new = tmp_path / "d" / "damaged.db", tmp_path / "new.db"
    with_damage(store_file, path, content_of(store_file).index(b"2 44 "))
    before = content_of(path)
    told: list[tuple[int, int]] = []
    done = await repair_store(
        address(path), to=address(new), on_progress=lambda done, steps: told.append((done, steps))
    )

    assert [state for state in told if state[0] == state[1]]
    assert all(0 <= passed <= steps for passed, steps in told)
    assert content_of(path) == before
    assert done.aside is None
    assert len(done.losses) == 1
    async with open_store(address(new)) as store:
        assert (await store.backend.maintenance.verify()).problems == ()
    with pytest.raises(StoreExists):
        await repair_store(address(path), to=address(new))


async def test_repair_of_open_store_is_rejected(store_file: Path) -> None:
    async with open_store(address(store_file)):
        with pytest.raises(StoreInUse):
            await repair_store(address(store_file))
    with raw_database(store_file) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreInUse):
            await repair_store(address(store_file))
        other.execute("ROLLBACK")


async def test_file_that_is_not_a_store_is_unchanged_by_repair(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("dear reader, " * 1000)
    with pytest.raises(NotAStore):
        await repair_store(address(path))
    with pytest.raises(NotAStore):
        await repair_store(address(tmp_path / "nothing.db"))


async def test_repair_writes_only_into_the_folder_of_the_target(
    stores: dict[str | None, bytes], tmp_path: Path
) -> None:
    """The disk of the damaged store could be full or read-only.

    The new file is written beside the target, because a file can only be moved within one disk.
    """
    path, new = tmp_path / "a.db", tmp_path / "elsewhere" / "new.db"
    copied(stores, path)
    with raw_database(path) as db:
        db.execute("UPDATE entry SET body = CAST(replace(body, 'answer', 'anwser') AS BLOB)")
    path.with_name("a.db-repairing").touch()  # nobody can make a folder there

    done = await repair_store(address(path), to=address(new))

    assert (done.is_damaged, new.is_file()) == (True, True)
    assert [file.name for file in new.parent.iterdir()] == ["new.db"]


async def test_full_disk_is_reported_and_leaves_no_file(
    stores: dict[str | None, bytes], tmp_path: Path
) -> None:
    path = tmp_path / "a.db"
    copied(stores, path)
    with raw_database(path) as db:
        db.execute("UPDATE entry SET body = CAST(replace(body, 'answer', 'anwser') AS BLOB)")
    whole = path.read_bytes()
    with planned(failing_at(1, errno.ENOSPC, "mkdir")), pytest.raises(StoreFull):
        await repair_store(address(path))
    assert path.read_bytes() == whole
    assert not path.with_name("a.db-repairing").exists()
