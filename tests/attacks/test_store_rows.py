"""A received store file with broken rows: every call ends, with a value or a clear error.

The schema is that of perdure, so the file is opened; but perdure never writes rows like the broken
ones.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Coroutine
from pathlib import Path

import pytest

import perdure
from perdure.apps.maintenance.backup import back_up
from perdure.apps.maintenance.copy import copy_sessions
from perdure.apps.maintenance.repair import repair_store
from perdure.apps.maintenance.stats import figures
from perdure.client.clock import Outside
from perdure.client.memory.handle import Memory
from perdure.errors import PerdureError
from perdure.session.ids import EntryId, StreamId
from perdure.session.search.values import SearchQuery
from perdure.stores.retention.policy import Retention
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.embedders import WordEmbedder
from tests.fakes.planted import FIRST, PATH_FORK, STREAMS, TREE_FORK, plant
from tests.fakes.raw_database import raw_database
from tests.fakes.samples import ALL_ONLY
from tests.fakes.streams import say

LIMIT_S = 20.0
"""CPU time, since a machine may be busy; a call that waits for ever exceeds the test's limit."""

WORD = "canary"
MOST = 2**63 - 1
NESTED = "CAST(replace(hex(zeroblob(50000)), '0', '[') AS BLOB)"


def number(stream: StreamId) -> str:
    return f"(SELECT no FROM stream WHERE id = '{stream}')"


A, FORK, PATH = number(FIRST), number(TREE_FORK), number(PATH_FORK)

FORMS = {
    "body-of-text": "UPDATE entry SET body = 'text'",
    "body-of-another-type": "UPDATE entry SET body = x'ff00fe'",
    "body-nested-deep": f"UPDATE entry SET body = {NESTED}",
    "body-of-megabytes": "UPDATE entry SET body = zeroblob(20000000) WHERE n = 1",
    "salt-of-text": "UPDATE entry SET salt = 'salt' || n",
    "digest-too-short": "UPDATE entry SET digest = x'00'",
    "seq-negative": f"UPDATE entry SET seq = -seq - 5 WHERE stream = {A}",
    "seq-huge": f"UPDATE entry SET seq = {MOST} WHERE n = (SELECT max(n) FROM entry)",
    "position-negative": "UPDATE entry SET n = -n",
    "position-huge": f"UPDATE entry SET n = {MOST} WHERE n = (SELECT max(n) FROM entry)",
    "entry-its-own-parent": "UPDATE entry SET ref = seq WHERE run IS NOT NULL",
    "parents-in-a-circle": f"UPDATE entry SET ref = seq + 1 WHERE run IS NOT NULL AND stream = {A}",
    "run-of-itself-circular": "UPDATE entry SET run = 0, ref = seq",
    "run-negative": "UPDATE entry SET run = -4 WHERE run IS NOT NULL",
    "run-huge": f"UPDATE entry SET run = {MOST} WHERE run IS NOT NULL",
    "run-ahead": "UPDATE entry SET run = seq + 1 WHERE run IS NOT NULL",
    "ref-of-a-blob": "UPDATE entry SET ref = x'00ff'",
    "ref-of-a-real": "UPDATE entry SET ref = 1.5e300",
    "ref-of-nothing": "UPDATE entry SET ref = 'nowhere/7'",
    "ref-with-a-huge-seq": "UPDATE entry SET ref = 'first/99999999999999999999999'",
    "ref-into-itself": "UPDATE entry SET ref = 'path/0', run = seq WHERE run IS NOT NULL",
    "depth-negative": "UPDATE entry SET depth = -1, messages = -1",
    "depth-huge": f"UPDATE entry SET depth = {MOST}, messages = {MOST}",
    "state-of-itself": "UPDATE state SET before = no, compaction = 1",
    "state-in-a-circle": "UPDATE state SET before = (SELECT max(no) FROM state) - no + 1",
    "state-gone": "DELETE FROM state",
    "kind-unknown": "UPDATE entry SET kind = 4711",
    "kind-huge": f"UPDATE entry SET kind = {MOST}",
    "kind-of-megabytes": "UPDATE kind SET name = hex(zeroblob(2000000)) WHERE no = 1",
    "version-negative": "UPDATE entry SET v = -1",
    "version-huge": f"UPDATE entry SET v = {MOST}",
    "time-negative": f"UPDATE entry SET at = -{MOST}; UPDATE stream SET updated_at = -{MOST}",
    "time-huge": f"UPDATE entry SET at = {MOST}; UPDATE stream SET created_at = {MOST}",
    "text-not-utf-8": "UPDATE stream SET title = CAST(x'ff41fe' AS TEXT)",
    "id-not-utf-8": f"UPDATE stream SET id = CAST(x'ff41' AS TEXT) WHERE no = {A}",
    "id-that-is-a-path": f"UPDATE stream SET id = '../../etc/passwd' WHERE no = {A}",
    "id-empty": f"UPDATE stream SET id = '' WHERE no = {A}",
    "id-with-a-zero": f"UPDATE stream SET id = 'a' || char(0) || 'b' WHERE no = {A}",
    "id-of-megabytes": f"UPDATE stream SET id = hex(zeroblob(2000000)) WHERE no = {A}",
    "head-negative": "UPDATE stream SET head = -7",
    "head-huge": f"UPDATE stream SET head = {MOST}",
    "leaf-of-nothing": "UPDATE stream SET leaf = 4711",
    "leaf-of-another-session": f"UPDATE stream SET leaf = 1, tip = 1 WHERE no <> {A}",
    "tip-huge": f"UPDATE stream SET tip = {MOST}",
    "hash-too-short": "UPDATE stream SET hash = x'00'",
    "epoch-negative": "UPDATE stream SET epoch = -1, until = -1, owner = 'x'",
    "epoch-huge": f"UPDATE stream SET epoch = {MOST}, owner = 'x', until = {MOST}",
    "open-turn-of-nothing": "UPDATE stream SET open_turn = 4711",
    "counts-huge": f"UPDATE stream SET messages = {MOST}, turns = {MOST}",
    "status-unknown": "UPDATE stream SET status = 'evil', kind = 'session', origin = 'evil'",
    "namespace-gone": "DELETE FROM namespace",
    "namespace-negative": "UPDATE stream SET namespace = -5",
    "header-not-json": "UPDATE birth SET header = x'ff'",
    "header-nested-deep": f"UPDATE birth SET header = {NESTED}",
    "header-of-another": "UPDATE birth SET header = (SELECT header FROM birth WHERE stream = 1)",
    "birth-gone": "DELETE FROM birth",
    "genesis-too-short": "UPDATE birth SET genesis = x''",
    "fork-of-itself": "UPDATE birth SET origin = stream, origin_head = 3, is_path = 0",
    "path-fork-of-itself": "UPDATE birth SET origin = stream, origin_leaf = 1, is_path = 1",
    "forks-in-a-circle": f"""UPDATE birth SET origin = {FORK} WHERE stream = {PATH};
        UPDATE birth SET origin = {PATH} WHERE stream = {FORK}""",
    "forks-in-a-circle-of-parents": f"UPDATE stream SET parent = '{PATH_FORK}'",
    "fork-of-nothing": "UPDATE birth SET origin = 4711, origin_head = 9, is_path = 0",
    "fork-with-a-huge-head": f"UPDATE birth SET origin_head = {MOST}, shared_messages = {MOST}",
    "commits-negative": "UPDATE commits SET count = -1",
    "commits-huge": f"UPDATE commits SET count = {MOST}",
    "commits-gone": "DELETE FROM commits",
    "alias-of-nothing": f"UPDATE alias SET seq = {MOST}",
    "key-of-nothing": f"UPDATE idempotency SET first = {MOST}",
    "content-packed-twice": "UPDATE blob SET packing = 7",
    "content-not-zlib": "UPDATE blob SET content = x'ff00', packing = 1",
    "content-of-a-terabyte": "UPDATE blob SET size = 1000000000000, packing = 1",
    "content-negative": "UPDATE blob SET size = -1",
    "partial-not-json": "UPDATE partial SET content = x'ff', seq = -1",
    "sequence-at-the-end": f"UPDATE sqlite_sequence SET seq = {MOST}",
    "sequence-of-text": "UPDATE sqlite_sequence SET seq = 'evil'",
    "removed-at-the-end": f"UPDATE removed SET position = {MOST}",
    "removed-gone": "DELETE FROM removed",
    "removed-twice": "INSERT INTO removed VALUES (5, 0)",
    "erasure-not-json": "INSERT INTO erasure VALUES (1, 1, 'e', 0, 0, x'ff')",
    "erasure-without-end": f"""INSERT INTO erasure VALUES (1, 1, 'e', 0, 0, x'7b7d');
        INSERT INTO erasing VALUES (1, 1, 1, 0, {MOST}, 1)""",
    "retention-not-json": "INSERT OR REPLACE INTO retention VALUES (1, x'ff')",
    "backup-path": "INSERT INTO backup VALUES ('/etc/passwd', -1)",
    "search-mark-huge": f"UPDATE search_mark SET version = 1, entry = {MOST}, parts = {MOST}",
    "search-mark-gone": "DELETE FROM search_mark",
    "search-mark-of-none": "INSERT INTO search_mark VALUES (99, 1, 5, 5, 5, 5)",
    "vector-model-huge": f"""INSERT INTO search_model VALUES ({MOST}, 1, 'words:1', 16, {MOST});
        INSERT INTO search_vector VALUES ({MOST}, x'ff'), (1099511627777, x''), (-1, x'ff')""",
    "vector-too-short": """INSERT INTO search_model VALUES (1, 1, 'words:1', 16, -5);
        INSERT INTO search_vector VALUES (1099511627777, x'01')""",
    "search-parts-of-none": "UPDATE search_part SET namespace = 99",
    "spans-of-none": "UPDATE span SET namespace = 99",
    "spans-gone": "DELETE FROM span",
    "spans-huge": f"INSERT INTO span VALUES ({MOST}, 1)",
    "usage-gone": "DELETE FROM usage",
    "usage-huge": f"UPDATE usage SET sessions = {MOST}, entries = {MOST}, body_bytes = {MOST}",
    "usage-negative": "UPDATE usage SET sessions = -5, kept = -5, body_bytes = -5",
    "questions-of-nothing": f"INSERT INTO open_question VALUES (1, 4711, 0), (1, {A}, {MOST})",
    "questions-that-are-none": "INSERT INTO open_question SELECT 1, stream, seq FROM entry",
    "names-of-nothing": f"INSERT INTO name_part VALUES (1, x'ff', 4711), (1, x'', {MOST})",
    "names-of-all": "INSERT OR IGNORE INTO name_part SELECT 1, x'', no FROM stream",
    "names-gone": "DELETE FROM name_part",
    "search-pages-not-ours": "UPDATE search_page SET body = x'ffffffffffffffffffff'",
    "search-texts-not-ours": "UPDATE search_text SET said = x'ffffffffffffff', n = -n",
    "search-parts-huge": f"UPDATE search_part SET size = {MOST}, last = {MOST}",
    "search-loose-not-ours": "UPDATE search_loose SET said = hex(zeroblob(1000000)), filters = ''",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store file before its rows are broken; each test breaks a copy."""
    path = tmp_path_factory.mktemp("whole") / "store.db"

    async def fill() -> None:
        store = await SqliteStore.open(path, clock=ManualClock(), random=SeededRandom(1))
        await plant(store, WORD)
        await store.search.reindex()
        await say(store, "not indexed yet", stream=FIRST)
        await store.close()

    asyncio.run(fill())
    assert not path.with_name("store.db-wal").exists(), "a copy of the file lacks what is there"
    return path


def received(whole: Path, path: Path, form: str) -> Path:
    shutil.copyfile(whole, path)
    with raw_database(path) as db:
        db.execute(FORMS[form]).fetchall()
    return path


async def computed_within(limit_s: float, work: Coroutine[object, object, object]) -> None:
    """Run `work`; end it with a TimeoutError once it has used too much CPU time."""
    began = time.process_time()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        while not task.done():
            await asyncio.wait([task], timeout=0.05)
            if time.process_time() - began > limit_s:
                task.cancel()
                break
    if task.cancelled():
        raise TimeoutError(f"took more than {limit_s} s of the processor")


class Calls:
    """Runs calls one after the other; `refused` lists the calls that raised a perdure error."""

    def __init__(self) -> None:
        self.refused: list[str] = []

    async def __call__(self, name: str, work: Awaitable[object]) -> None:
        try:
            await work
        except PerdureError as error:
            self.refused.append(f"{name}: {type(error).__name__}: {str(error)[:300]}")


async def use(path: Path) -> list[str]:
    """Run every operation once; return the refused operations. Other errors are raised."""
    do, address = Calls(), f"sqlite:///{path}"
    await do("use", use_store(path, do))
    await do("backup", back_up(address, path.with_name("backup")))
    await do("copy", copy(address, f"sqlite:///{path.with_name('copy.db')}", do))
    await do("repair", repair_store(address))
    return do.refused


OUTSIDE = Outside(ManualClock(), SeededRandom(2))


async def use_store(path: Path, do: Calls) -> None:
    store = await SqliteStore.open(path, clock=ManualClock(), random=SeededRandom(2))
    try:
        await do("sessions", store.sessions(limit=None, scope="all"))
        for stream in STREAMS:
            await do("reading", read(store, stream, do))
        for name, work in (
            ("feed", store.feed(0)),
            ("position", store.position()),
            ("search", store.search.hits(SearchQuery(text=WORD))),
            ("recall", Memory(store, OUTSIDE, WordEmbedder()).recall(WORD)),
            ("holdings", store.retention.holdings()),
            (
                "is_due",
                store.retention.is_due(Retention(max_idle_s=1, max_age_s=1, max_sessions=1)),
            ),
            ("questions", store.open_of_all("question")),
            ("idle", store.idle_sessions(MOST)),
            ("open turns", store.open_turns()),
            ("info", store.info()),
            ("verify", store.maintenance.verify()),
            ("say", say(store, "more", stream=FIRST)),
            ("quota", store.retention.quota()),
            ("retention", store.retention.policy()),
            ("backups", store.retention.backups()),
            ("erasures", store.retention.erasures()),
            ("reindex", store.search.reindex()),
            ("vacuum", store.maintenance.vacuum()),
        ):
            await do(name, work)
    finally:
        await store.close()


async def read(store: SqliteStore, stream: StreamId, do: Calls) -> None:
    await do("entries", store.entries(stream))
    await do("entry", store.entry(stream, EntryId(f"{stream}/1")))
    await do("newest", store.newest(stream, limit=5))
    await do("tree", store.tree(stream))
    await do("notes", store.notes(stream, ("leaf_moved", "label")))
    await do("partial", store.partial(stream))
    await do("aliases", store.aliases(stream))
    await do("resolve", store.resolve(stream, "1"))
    leaf = (await store.state(stream)).leaf
    await do("branch", store.branch(stream, leaf))
    await do("window", store.context_window(stream, leaf))


async def copy(address: str, target: str, do: Calls) -> None:
    async with perdure.open(address) as source, perdure.open(target) as there:
        await do("stats", figures(source))
        await do("copy", copy_sessions(source, there))


FAILED_BEFORE = (
    "body-of-text",
    "salt-of-text",
    "seq-huge",
    "run-huge",
    "run-ahead",
    "ref-with-a-huge-seq",
    "depth-negative",
    "depth-huge",
    "text-not-utf-8",
    "head-huge",
    "counts-huge",
    "fork-of-itself",
    "path-fork-of-itself",
    "forks-in-a-circle",
    "commits-huge",
    "removed-at-the-end",
    "removed-gone",
    "erasure-not-json",
    "retention-not-json",
)
"""Rows that caused a hang, a memory error or a traceback before rows were checked."""


OTHERS = tuple(form for form in FORMS if form not in FAILED_BEFORE)


def marks_of(form: str) -> tuple[pytest.MarkDecorator, ...]:
    """Mark most of the forms that never failed, so that only `make test-all` runs them."""
    if form in FAILED_BEFORE:
        return ()
    return (pytest.mark.full_only,) if OTHERS.index(form) % 10 == 0 else (ALL_ONLY,)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("form", [pytest.param(form, marks=marks_of(form)) for form in FORMS])
async def test_every_call_ends_although_the_store_has_broken_rows(
    form: str, whole: Path, tmp_path: Path
) -> None:
    path = received(whole, tmp_path / "received.db", form)
    await computed_within(LIMIT_S, use(path))


async def test_store_call_that_computes_too_long_is_stopped() -> None:
    ended = asyncio.Event()

    async def compute() -> None:
        try:
            while True:
                await asyncio.to_thread(sum, range(100_000))
        finally:
            ended.set()

    with pytest.raises(TimeoutError, match="processor"):
        await computed_within(0.1, compute())
    assert ended.is_set()
