"""Counts beside the log of a file: exact, cheap to read at any size, and checked by verify."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.client import retention
from perdure.client.store import Store
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import Sibling
from perdure.session.flows.kinds import FlowCompleted, FlowStarted
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.messages import user
from perdure.session.notes import Answer, Question
from perdure.stores.protocol import Commit, Write
from perdure.stores.retention.policy import Retention
from tests.fakes.clock import START_MS
from tests.fakes.flow_log import graph
from tests.fakes.planted import plant
from tests.fakes.raw_database import raw_database
from tests.fakes.samples import case
from tests.integration.sqlite.conftest import Opener

ASKED = new_side(Question("approval", "May I?", ("allow", "deny")))
ANSWERED = new_side(Answer("allow", "me"), Sibling(0))

WRONG = {
    "usage-streams": "UPDATE usage SET streams = streams + 1",
    "usage-sessions": "UPDATE usage SET sessions = 0",
    "usage-flows": "UPDATE usage SET flows = 7",
    "usage-entries": "UPDATE usage SET entries = entries - 1",
    "usage-kept": "UPDATE usage SET kept = kept * 2",
    "usage-bodies": "UPDATE usage SET body_bytes = 1",
    "usage-contents": "UPDATE usage SET content_bytes = content_bytes + 1",
    "usage-packed": "UPDATE usage SET packed_bytes = 0",
    "usage-gone": "DELETE FROM usage",
    "counted-none": "DELETE FROM counted",
    "counted-twice": "INSERT INTO counted VALUES (0)",
    "counted-ahead": "UPDATE counted SET position = 4711; UPDATE usage SET entries = entries - 2",
    "counted-behind": "UPDATE counted SET position = 0",
    "counted-gone": "DELETE FROM counted; UPDATE usage SET entries = 0",
    "question-invented": "INSERT INTO open_question SELECT 1, stream, seq FROM entry LIMIT 1",
    "question-hidden": "DELETE FROM open_question",
    "name-hidden": "DELETE FROM name_part WHERE part = (SELECT max(part) FROM name_part)",
    "name-invented": "INSERT INTO name_part VALUES (1, x'7a7a7a', 1)",
    "name-of-none": "INSERT INTO name_part VALUES (1, x'7a7a7a', 4711)",
}


async def test_verify_reports_each_kind_of_wrong_count(open_store: Opener, path: Path) -> None:
    store = await open_store()
    await plant(store, "canary")
    write = Write(stream=StreamId("asks"), create=_header("asks"), entries=(ASKED,))
    await store.commit(Commit(writes=(write,), at=START_MS))
    assert (await store.maintenance.verify()).problems == ()
    await store.close()
    for form, change in {"unchanged": "", **WRONG}.items():
        with case(form):
            copy = Path(shutil.copyfile(path, path.with_name(f"{form}.db")))
            with raw_database(copy) as db:
                fold = "UPDATE counted SET position = (SELECT max(n) FROM entry)"
                _fold_first(db, fold)
                db.execute(change)

            received = await open_store(copy)
            problems = (await received.maintenance.verify()).problems
            assert (problems == ()) == (form == "unchanged")
            await received.close()


def _fold_first(db: Any, fold: str) -> None:
    """Count the entries that no commit has counted yet, as happens every 64 positions."""
    db.execute(
        """UPDATE usage SET entries = usage.entries + t.c, kept = usage.kept + t.k,
        body_bytes = usage.body_bytes + t.b FROM (SELECT s.namespace, count(*) AS c,
        count(e.salt) AS k, sum(length(e.body)) AS b FROM entry AS e JOIN stream AS s
        ON s.no = e.stream WHERE e.n > (SELECT position FROM counted) GROUP BY 1) AS t
        WHERE usage.namespace = t.namespace"""
    )
    db.execute(fold)


async def test_verify_reports_an_index_that_omits_a_session(open_store: Opener, path: Path) -> None:
    store = await open_store()
    await plant(store, "canary")
    await store.close()
    with raw_database(path) as db:
        db.execute("PRAGMA writable_schema = ON")
        (row,) = db.execute("SELECT * FROM sqlite_schema WHERE name = 'stream_by_folder'")
        db.execute("DELETE FROM sqlite_schema WHERE name = 'stream_by_folder'")
    with raw_database(path) as db:
        db.execute("UPDATE stream SET cwd = '/moved'")
        db.execute("PRAGMA writable_schema = ON")
        db.execute("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", row)

    store = await open_store()
    assert await store.sessions(cwd="/moved") == []
    problems = [each.problem for each in (await store.maintenance.verify()).problems]
    assert any("index of the sessions is damaged" in each for each in problems)


# ---------------------------------------------------------------- what a read costs


class Steps:
    """A counter of the instructions of SQLite's virtual machine in every opened connection."""

    def __init__(self) -> None:
        self.count = 0

    def trace(self, event: dict[str, Any]) -> None:
        self.count += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    async def of(self, read: Callable[[], Awaitable[object]]) -> int:
        """Return the number of instructions during a call, including other work of the handle."""
        before = self.count
        await read()
        return self.count - before

    def hook(self, db: Any) -> None:
        db.trace_v2(apsw.SQLITE_TRACE_PROFILE, self.trace)


@pytest.fixture
def steps() -> Iterator[Steps]:
    counting = Steps()
    apsw.connection_hooks.append(counting.hook)
    yield counting
    apsw.connection_hooks.remove(counting.hook)


def reads(store: Store, runtime: perdure.Runtime) -> dict[str, Callable[[], Awaitable[object]]]:
    policies = (Retention(max_age_s=10**8, max_idle_s=10**8), Retention(max_sessions=10**8))
    return {
        "newest": lambda: store.recent(5),
        "a name that none has": lambda: store.recent(query="zzzz"),
        "a letter that none has": lambda: store.recent(query="z"),
        "a long name that none has": lambda: store.recent(query="hello 1234567 and more"),
        "a name that one has": lambda: store.recent(query="hello 77 "),
        "a name that all have": lambda: store.recent(5, query="Hello"),
        "of a folder": lambda: store.recent(5, cwd="/folder/1"),
        "of a folder without any": lambda: store.recent(cwd="/nowhere"),
        "continue": lambda: store.continue_recent("/nowhere"),
        "interrupted": lambda: store.recent(status="interrupted"),
        "resume all": runtime.resume_all,
        "questions": store.questions,
        "end idle": runtime.end_idle,
        "quota": lambda: retention.quota(store),
        "info": store.info,
        "retention of ages": lambda: retention.apply_retention(store, policies[0]),
        "retention of counts": lambda: retention.apply_retention(store, policies[1]),
    }


async def test_reads_cost_at_most_10_percent_more_with_16_times_the_sessions(
    tmp_path: Path, steps: Steps
) -> None:
    found: list[dict[str, int]] = []
    for size in (128, 2_048):
        async with perdure.open(f"sqlite:///{tmp_path}/{size}.db", durability="normal") as store:
            await _fill(store, size)
            async with perdure.Runtime(store, idle_timeout_s=10**9) as runtime:
                costs: dict[str, int] = {}
                for name, read in reads(store, runtime).items():
                    costs[name] = min([await steps.of(read) for _ in range(8)])
                found.append(costs)
    few, many = found
    assert all(cost > 0 for cost in few.values())
    grown = {name: (few[name], many[name]) for name in few if many[name] > 1.1 * few[name]}
    assert not grown, (few, many)


async def _fill(store: Store, size: int) -> None:
    """Create `size` sessions in folders, each with a message and a closed question; and a flow."""
    writes = tuple(
        Write(
            stream=StreamId(f"s{number}"),
            create=_header(f"s{number}", f"/folder/{number % 8}"),
            entries=(ASKED, ANSWERED, new_tree(user(f"hello {number} there"))),
        )
        for number in range(size)
    )
    started = FlowStarted("project", "/w", "/w/record", graph("a>b"), ("a",))
    flow = StreamHeader(StreamId("flow"), START_MS, kind="flow")
    over = (new_side(started), new_side(FlowCompleted()))
    writes += (Write(stream=flow.id, create=flow, entries=over),)
    at = store.outside.clock.now_ms()
    await store.backend.commit(Commit(writes=writes, at=at))


def _header(stream: str, cwd: str | None = None) -> StreamHeader:
    return StreamHeader(StreamId(stream), START_MS, cwd=cwd)


async def test_append_updates_the_stored_counts_once_every_64_positions(
    open_store: Opener, path: Path
) -> None:
    store = await open_store()
    write = Write(stream=StreamId("s"), create=_header("s"), entries=(new_tree(user("0")),))
    await store.commit(Commit(writes=(write,), at=START_MS))
    moved: list[int] = []
    for number in range(200):
        said = Write(stream=StreamId("s"), entries=(new_tree(user(f"{number}")),))
        await store.commit(Commit(writes=(said,), at=START_MS))
        with raw_database(path) as db:
            ((position,),) = db.execute("SELECT position FROM counted")
        moved += [position] if not moved or moved[-1] != position else []
        assert (await store.info()).entries == number + 2
    assert moved == [0, 63, 127, 191]
