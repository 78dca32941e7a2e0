"""Query plans: the server reads no more rows than it returns, at any size.

Under row-level security, an index condition can use only leakproof functions. A statement with
another function returns the right result, but reads all entries of its namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from typing import Any, Literal

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

import perdure
from perdure.errors import EntryNotFound
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import Sibling
from perdure.session.ids import EntryId, StreamId, blob_hash
from perdure.session.info import ForkPoint
from perdure.session.kinds import Compaction
from perdure.session.notes import Answer, Question
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.protocol import Commit, Write
from perdure.stores.retention.policy import Retention
from tests.conformance.store.building import (
    S,
    append,
    create,
    erasure,
    fork,
    header,
    labelled,
    said,
)
from tests.fakes.clock import START_MS
from tests.integration.postgres.conftest import Database, Open

MANY, A_COMMIT = 1_500, 50
FEW = 100
"""More rows than any of these operations may read."""

Operation = Callable[[PostgresStore], Awaitable[object]]
LAST = EntryId(f"s/{MANY - 1}")

OPERATIONS: dict[str, Operation] = {
    "state": lambda store: store.state(S),
    "branch": lambda store: store.branch(S, LAST, limit=5),
    "messages": lambda store: store.branch(S, LAST, limit=5, kind="message"),
    "entries": lambda store: store.entries(S, MANY - 5),
    "tail": lambda store: store.tail(S, 5, ("label",)),
    "entry": lambda store: store.entry(S, LAST),
    "find_entry": lambda store: store.find_entry(S, "7"),
    "window": lambda store: store.context_window(S, LAST),
    "notes": lambda store: store.notes(S, ("label",)),
    "seen": lambda store: store.visible_ids(S, [LAST, EntryId("s/7"), EntryId("other/7")]),
    "around": lambda store: store.around(S, LAST, [EntryId("s/7"), EntryId("s/700")], 4),
    "fork": lambda store: fork(store, S, "new", at=LAST),
    "path": lambda store: fork(store, S, "old", at=EntryId("s/700"), head=700, scope="path"),
    "append": lambda store: append(store, S, said("more")),
    "lease": lambda store: store.acquire_lease(S, "me", 1_000),
    "sessions": lambda store: store.sessions(limit=5),
    "feed": lambda store: store.feed(MANY - 5, limit=5),
    "position": lambda store: store.position(),
}


class Plans:
    """The plans of all statements that the server executed while `is_on` was set."""

    def __init__(self) -> None:
        self.is_on = False
        self.asked: list[tuple[str, psycopg.AsyncCursor[Any]]] = []

    async def widest(self) -> tuple[float, str]:
        """Return the most rows that a step of a statement read, and the statement."""
        found = [(0.0, "nothing was asked")]
        for sql, cursor in self.asked:
            row = await cursor.fetchone()
            assert row is not None
            found += [(rows, " ".join(sql.split())) for rows in gone_through(row[0][0]["Plan"])]
        self.asked.clear()
        return max(found)

    async def without_session(self) -> list[str]:
        """Return the scans of entries that no index limits to a session."""
        found = [await cursor.fetchone() for _, cursor in self.asked]
        self.asked.clear()
        return [
            f"{step['Node Type']} {step.get('Index Name')}"
            for row in found
            for step in steps(row[0][0]["Plan"] if row else {})
            if step.get("Relation Name") == "entry"
            and not any(part.strip("(").startswith("stream") for part in _conditions(step))
        ]

    async def total(self) -> float:
        """Return the number of rows that all steps of all statements read."""
        found = [await cursor.fetchone() for _, cursor in self.asked]
        self.asked.clear()
        return sum(rows for row in found if row for rows in gone_through(row[0][0]["Plan"]))


def steps(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield `step` and the steps below it."""
    yield step
    for part in step.get("Plans", ()):
        yield from steps(part)


def _conditions(step: dict[str, Any]) -> list[str]:
    """Return the conditions that the index of `step` satisfies."""
    return step.get("Index Cond", "").split(" AND ")


def gone_through(step: dict[str, Any]) -> Iterator[float]:
    """Yield the number of rows that each step of a plan returned or filtered out."""
    for each in steps(step):
        left_out = sum(value for key, value in each.items() if key.startswith("Rows Removed"))
        yield (each["Actual Rows"] + left_out) * each["Actual Loops"]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Plans:
    found = Plans()
    execute: Any = psycopg.AsyncConnection.execute

    async def explained(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        is_read = isinstance(query, str) and query.split()[0] in ("SELECT", "WITH")
        if found.is_on and is_read and "FROM" in query:
            told = await execute(self, f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *args)
            found.asked.append((query, told))
        return await execute(self, query, *args, **options)

    monkeypatch.setattr(psycopg.AsyncConnection, "execute", explained)
    return found


async def test_no_operation_scans_more_rows_than_needed(
    open_store: Open, db: Database, plans: Plans
) -> None:
    filling = await open_store()
    kept = new_tree(Compaction("gist", EntryId(f"s/{MANY - 9}")))
    said_before = [said(f"word {number}") for number in range(MANY - 5)]
    entries = [*said_before, kept, *[said("after it")] * 4]
    await create(filling, S)
    for begin in range(0, MANY, A_COMMIT):
        await append(filling, S, *entries[begin : begin + A_COMMIT])
    await append(filling, S, labelled("here", LAST))
    await create(filling, StreamId("other"), *said_before[:200])
    db.execute("ANALYZE")

    too_wide: dict[str, str] = {}
    for name, operation in OPERATIONS.items():
        fresh = await open_store()
        plans.is_on = True
        await operation(fresh)
        plans.is_on = False
        rows, sql = await plans.widest()
        if not 0 < rows <= FEW:
            too_wide[name] = f"{rows} rows: {sql}"
    assert too_wide == {}


async def test_plans_of_nearly_empty_store_use_session_index(
    open_store: Open, plans: Plans
) -> None:
    filling = await open_store()
    await create(filling, S, *(said(f"word {number}") for number in range(10)))
    await append(filling, S, labelled("here", EntryId("s/9")))
    await create(filling, StreamId("other"), said("word"))
    unfit: dict[str, list[str]] = {}
    for name in ("state", "entries", "lease"):
        plans.is_on = True
        await OPERATIONS[name](filling)
        plans.is_on = False
        unfit[name] = await plans.without_session()
    assert unfit == {name: [] for name in unfit}


SESSIONS = 600
ASKED = Question("approval", "May I?", ("allow", "deny"))

LISTS: dict[str, Operation] = {
    "sessions": lambda store: store.sessions(limit=5),
    "of a folder": lambda store: store.sessions(limit=5, cwd="/folder/1"),
    "of a folder without any": lambda store: store.sessions(cwd="/nowhere"),
    "a name that none has": lambda store: store.sessions(query="zzzz"),
    "a letter that none has": lambda store: store.sessions(query="z"),
    "a name that one has": lambda store: store.sessions(query="S599"),
    "an id prefix that one has": lambda store: store.sessions(id_prefix="s599"),
    "an id prefix that none has": lambda store: store.sessions(id_prefix="zz"),
    "idle": lambda store: store.idle_sessions(START_MS - 1),
    "open turns": lambda store: store.open_turns(),
    "questions": lambda store: store.open_of_all("question"),
    "questions of a session": lambda store: store.open_questions(StreamId("s1")),
    "notes of a session": lambda store: store.notes(StreamId("s1"), ("question", "answer")),
    "tail of a session": lambda store: store.tail(StreamId("s1"), 5, ("question", "answer")),
    "due by age": lambda store: store.retention.is_due(Retention(max_age_s=10**6)),
    "due by idleness": lambda store: store.retention.is_due(Retention(max_idle_s=10**6)),
}


@pytest.mark.all_only
async def test_no_list_reads_more_sessions_than_it_returns(
    open_store: Open, db: Database, plans: Plans
) -> None:
    filling = await open_store()
    for (table,) in db.execute(_TABLES).fetchall():  # else it may be analyzed half filled
        named = Identifier("perdure", table)
        db.execute(SQL("ALTER TABLE {} SET (autovacuum_enabled = false)").format(named))
    answered = (new_side(ASKED), new_side(Answer("allow", "me"), Sibling(0)), said("hello"))
    for first in range(0, SESSIONS, A_COMMIT):
        headers = [
            header(f"s{number}", cwd=f"/folder/{number % 100}")
            for number in range(first, first + A_COMMIT)
        ]
        writes = tuple(Write(stream=h.id, create=h, entries=answered) for h in headers)
        await filling.commit(Commit(writes=writes, at=START_MS))
        if not first:
            db.execute("ANALYZE")  # as autovacuum does once a table has 50 rows
    await append(filling, StreamId("s1"), new_side(ASKED))
    assert await too_wide_lists(open_store, plans) == {}
    db.execute("ANALYZE")
    assert await too_wide_lists(open_store, plans) == {}


async def too_wide_lists(open_store: Open, plans: Plans) -> dict[str, str]:
    too_wide: dict[str, str] = {}
    for name, operation in LISTS.items():
        fresh = await open_store()
        plans.is_on = True
        await operation(fresh)
        plans.is_on = False
        assert plans.asked
        rows, sql = await plans.widest()
        if rows > FEW:
            too_wide[name] = f"{rows} rows: {sql}"
    return too_wide


async def test_list_of_questions_reads_only_open_questions(open_store: Open, plans: Plans) -> None:
    filling = await open_store()
    await create(filling, S)
    answered = (new_side(ASKED), new_side(Answer("allow", "me"), Sibling(0)))
    for _ in range(4 * FEW):
        await append(filling, S, *answered)
    await append(filling, S, new_side(ASKED))
    plans.is_on = True
    assert [entry.seq for entry in await filling.open_of_all("question")] == [8 * FEW]
    assert [entry.seq for entry in await filling.open_questions(S)] == [8 * FEW]
    plans.is_on = False
    assert await plans.widest() <= (FEW, "")


_TABLES = (
    "SELECT relname FROM pg_class WHERE relnamespace = 'perdure'::regnamespace AND relkind = 'r'"
)


@pytest.mark.all_only
async def test_reading_questions_is_not_slower_with_many_sessions(
    open_store: Open, address: str, db: Database, plans: Plans
) -> None:
    filling = await open_store()
    answered = (new_side(ASKED), new_side(Answer("allow", "me"), Sibling(0)))
    for first in range(0, SESSIONS, A_COMMIT):
        headers = [header(f"s{number}") for number in range(first, first + A_COMMIT)]
        writes = tuple(Write(stream=h.id, create=h, entries=answered) for h in headers)
        contents = tuple(f"content {first + number}".encode() for number in range(A_COMMIT))
        await filling.commit(Commit(writes=writes, at=START_MS, blobs=contents))
    sizes = [len(f"content {number}") for number in range(SESSIONS)]
    before = await filling.info()

    async def widest() -> tuple[float, str]:
        async with perdure.open(address) as opened:
            plans.is_on = True
            assert await opened.questions() == []
            assert (await opened.info()).payload_bytes == before.payload_bytes
            plans.is_on = False
        assert (await filling.retention.quota())[1].bytes == before.payload_bytes
        return await plans.widest()

    for _ in range(2):
        # Counts are stored up to the oldest transaction of the server, which may be one of its own,
        # such as an ANALYZE. It ends.
        async with asyncio.timeout(60):
            while await widest() > (FEW, ""):
                pass
        db.execute("ANALYZE")
    bodies = db.execute("SELECT sum(length(body))::bigint FROM perdure.entry").fetchall()[0][0]
    assert before.payload_bytes == bodies + sum(sizes)


async def test_newest_tree_entries_are_read_from_few_forks(open_store: Open, plans: Plans) -> None:
    filling = await open_store()
    await create(filling, S, said("first"))
    forks = [S, *(StreamId(f"f{number}") for number in range(FEW + 5))]
    for origin, stream in pairwise(forks):
        await fork(filling, origin, stream, said(f"in {stream}"))
    plans.is_on = True
    newest = await filling.tree(forks[-1], 5)
    plans.is_on = False
    assert [entry.stream for entry in newest] == forks[-5:]
    assert (await plans.widest())[0] <= FEW
    assert len(await filling.tree(forks[-1], FEW + 3)) == FEW + 3
    assert len(await filling.tree(forks[-1])) == len(forks)


@pytest.mark.parametrize("scope", ["tree", "path"])
async def test_newest_entries_of_a_deep_fork_are_read_with_one_statement(
    open_store: Open, plans: Plans, scope: Literal["tree", "path"]
) -> None:
    filling = await open_store()
    await create(filling, S, said("first"), said("second"))
    forks = [S, *(StreamId(f"f{number}") for number in range(60))]
    for origin, stream in pairwise(forks):
        head = await filling.state(origin)
        leaf = head.leaf if scope == "path" else None
        await fork(filling, origin, stream, at=leaf, head=head.head, scope=scope)
        await append(filling, stream, said(f"in {stream}"))
    asked: dict[int, int] = {}
    for limit in (5, 50):
        plans.is_on = True
        newest = await filling.tree(forks[-1], limit)
        plans.is_on = False
        asked[limit] = len(plans.asked)
        assert [entry.stream for entry in newest] == forks[-limit:]
        assert (await plans.widest())[0] <= FEW
    assert asked[5] == asked[50] <= 2
    whole = await filling.tree(forks[-1])
    assert [entry.stream for entry in whole] == [S, S, *forks[1:]]
    assert await filling.tree(forks[-1], 1_000) == whole


@pytest.mark.parametrize("scope", ["tree", "path"])
async def test_cost_of_committing_a_nested_fork_does_not_depend_on_the_depth(
    open_store: Open, plans: Plans, scope: Literal["tree", "path"]
) -> None:
    filling = await open_store()
    await create(filling, S, *(said(f"word {number}") for number in range(10)))
    leaf = EntryId("s/9")
    read: dict[tuple[bool, int], float] = {}
    for texts, count in ((texts, count) for texts in ((), ("new",)) for count in (10, 40)):
        origin, point, head = S, leaf, 9
        writes: list[Write] = []
        for number in range(count):
            stream = StreamId(f"f{len(read)}n{number}")
            made = header(stream, fork=ForkPoint(origin, point, head, scope))
            writes.append(Write(stream=stream, create=made, entries=tuple(map(said, texts))))
            origin, head = stream, len(texts) - 1
            point = EntryId(f"{stream}/0") if texts else leaf
        plans.is_on = True
        await filling.commit(Commit(writes=tuple(writes), at=START_MS))
        plans.is_on = False
        read[bool(texts), count] = await plans.total() / count
        assert (await filling.state(origin)).leaf == point
    for is_said in (False, True):
        assert read[is_said, 40] <= 1.1 * read[is_said, 10]


@pytest.mark.all_only
async def test_cost_of_erasing_an_origin_grows_linearly_with_its_forks(
    open_store: Open, db: Database, plans: Plans
) -> None:
    asked: dict[int, tuple[int, float]] = {}
    for length in (20, 160):
        store = await open_store(namespace=f"of {length}")
        await create(store, S, *[said(f"word {number}") for number in range(20)])
        forks = [S, *(StreamId(f"f{number}") for number in range(length))]
        for origin, stream in pairwise(forks):
            await fork(store, origin, stream, said("more"))
        db.execute("ANALYZE")
        request = erasure(S, forks="keep")
        plans.is_on = True
        await store.retention.erase(request)
        plans.is_on = False
        asked[length] = len(plans.asked), await plans.total()
        assert len(await store.tree(forks[-1])) == 20 + length
    (few, rows_of_few), (many, rows_of_many) = asked.values()
    assert many <= few
    assert rows_of_many <= rows_of_few * 8 * 1.3


async def test_media_erasure_reads_few_entries_while_contents_are_locked(
    open_store: Open, db: Database, plans: Plans
) -> None:
    store = await open_store()
    own, shared = b"only here", b"in another session too"
    for stream in (S, StreamId("other")):
        names = [blob_hash(each) for each in (own, shared) if stream == S or each == shared]
        await create(store, stream, *[said(f"media://{name}") for name in names])
    new = header("contents")
    write = Write(stream=new.id, create=new)
    await store.commit(Commit(writes=(write,), at=START_MS, blobs=(own, shared)))
    for begin in range(0, 6 * FEW, A_COMMIT):
        about = [
            said(f"see media://{blob_hash(b'%d' % n)}") for n in range(begin, begin + A_COMMIT)
        ]
        await append(store, StreamId("other"), *about)
    db.execute("ANALYZE")
    plans.is_on = True
    done = await store.retention.erase(erasure(S))
    plans.is_on = False
    assert done.is_complete
    assert await store.blob(blob_hash(shared)) == shared
    with pytest.raises(EntryNotFound):
        await store.blob(blob_hash(own))
    locked = [
        number for number, (sql, _) in enumerate(plans.asked) if "DELETE FROM perdure.blob" in sql
    ]
    plans.asked = plans.asked[locked[0] :]
    assert (await plans.widest())[0] <= FEW
