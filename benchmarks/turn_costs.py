"""Costs of a turn for a database and a worker, as counts: the figures of docs/scaling.md.

Each kind of turn (without tools, and with two successive tool calls) runs in concurrent sessions,
first in this process and then in one worker. A first batch of turns warms up and leaves dead rows.
After a VACUUM, a second batch is measured and vacuumed, so the growth of the database does not
include dead rows. Statements are counted in the server's log, in a separate batch. The work of an
idle worker in the same time is subtracted from the figures of turns in a worker, and shown
separately. The server makes no checkpoint during a measurement, because the first change of a page
after a checkpoint writes the whole page to the WAL.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString

import msgspec
import psycopg

import perdure
from benchmarks.figures import Figure, Run
from benchmarks.live import SETTLE_S, cpu_ms
from benchmarks.turn_agents import LONG, PLAIN, TOOLS, message, runtime
from perdure import Agent, Chat, Runtime
from tests.fakes.postgres import PostgresServer, serving
from tests.fakes.workers import WorkerProcess, until, workers

AT_ONCE = 8
TURNS = 400
IDLE_S = 10.0
SESSIONS = 100
FACTORY = "benchmarks.turn_agents:runtime"

_SETTINGS = (
    "ALTER SYSTEM SET autovacuum = off",
    "ALTER SYSTEM SET checkpoint_timeout = '1h'",
    "ALTER SYSTEM SET max_wal_size = '8GB'",
    "ALTER SYSTEM SET log_line_prefix = '%p '",
    "SELECT pg_reload_conf()",
)

_COUNTS: LiteralString = """
SELECT xact_commit, pg_current_wal_lsn() - '0/0'::pg_lsn
FROM pg_stat_database WHERE datname = current_database()
"""

_TABLES: LiteralString = """
SELECT schemaname, sum(n_tup_ins + n_tup_upd + n_tup_del), sum(pg_total_relation_size(relid))
FROM pg_stat_user_tables GROUP BY schemaname
"""

_SIZES: LiteralString = """
SELECT pg_database_size(current_database()),
    (SELECT sum(octet_length(body)) FROM perdure.entry), (SELECT count(*) FROM perdure.entry)
"""

_BACKENDS: LiteralString = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""

_STATEMENT = re.compile(r"^\d+ LOG:  (?:execute [^:]*|statement): ", re.MULTILINE)


class Counts(msgspec.Struct, frozen=True):
    """Counters of a database, and of the process that runs its turns. Units: bytes; ms of CPU."""

    at: float
    commits: float
    wal: float
    rows: float
    dbos_rows: float
    size: float
    dbos_size: float
    bodies: float
    entries: float
    process_ms: float
    backends: dict[int, float]

    def since(self, before: Counts) -> dict[str, float]:
        """Return the increase of each counter, without connections that ended in the meantime."""
        names = [name for name in self.__struct_fields__ if name != "backends"]
        added = {name: getattr(self, name) - getattr(before, name) for name in names}
        server = sum(ms - before.backends.get(pid, 0.0) for pid, ms in self.backends.items())
        return {**added, "server_ms": server}


class _Place:
    """A database, the worker on it, and the cost of an idle worker per second."""

    def __init__(
        self, server: PostgresServer, address: str, worker: WorkerProcess | None = None
    ) -> None:
        self.server = server
        self.address = address
        self.worker = worker
        self.idle: dict[str, float] = {}

    def set(self, setting: LiteralString) -> None:
        """Change a setting of the server."""
        self.server.execute(self.server.address, setting)
        self.server.execute(self.server.address, "SELECT pg_reload_conf()")


async def measure(run: Run) -> list[Figure]:
    """Measure turns in this process, turns in a worker, an idle worker, and memory per session."""
    with serving(is_own=True, is_quick=False) as server:
        for setting in _SETTINGS:
            server.execute(server.address, setting)
        return [
            *await _embedded(run, server),
            *await _in_worker(run, server),
            *await _memory(run, server),
        ]


async def _embedded(run: Run, server: PostgresServer) -> list[Figure]:
    place = _Place(server, server.new_database())
    async with perdure.open(place.address) as store, runtime(store) as turns:
        plain = await _turns(run, place, turns, PLAIN)
        return plain + await _turns(run, place, turns, TOOLS)


async def _in_worker(run: Run, server: PostgresServer) -> list[Figure]:
    address = server.new_database()
    with (
        tempfile.TemporaryDirectory() as folder,
        workers(1, address, Path(folder), factory=FACTORY) as (worker,),
    ):
        place = _Place(server, address, worker)
        async with perdure.open(address) as store, runtime(store, "workers") as turns:
            for agent in (PLAIN, TOOLS):
                await (await turns.start(agent)).send(message(0))
            figures = await _idle(place)
            figures += await _turns(run, place, turns, PLAIN)
            return figures + await _turns(run, place, turns, TOOLS)


async def _idle(place: _Place) -> list[Figure]:
    """Measure the cost per second of an idle worker, and store it in `place`."""
    before = await _counts(place)
    await asyncio.sleep(IDLE_S)
    added = (await _counts(place)).since(before)
    idle = place.idle
    idle |= {name: value / added["at"] for name, value in added.items()}
    with _statements(place) as counted:
        await asyncio.sleep(IDLE_S)
    idle["statements"] = counted[0] / IDLE_S
    claim = "an idle worker, per second"
    return [
        Figure(claim, "transactions", idle["commits"], ""),
        Figure(claim, "statements", idle["statements"], ""),
        Figure(claim, "WAL", idle["wal"], "B"),
        Figure(claim, "CPU time of the worker", idle["process_ms"], "ms"),
        Figure(claim, "CPU time of the server's processes", idle["server_ms"], "ms"),
    ]


async def _turns(run: Run, place: _Place, turns: Runtime, agent: Agent) -> list[Figure]:
    """Return the cost of a turn of `agent`, without the cost of an idle worker in the same time."""
    each = run.count(TURNS) // AT_ONCE
    count = each * AT_ONCE
    chats = [await turns.start(agent) for _ in range(AT_ONCE)]
    await _batch(chats, each, 0)
    _vacuum(place.address)
    before = await _counts(place)
    await _batch(chats, each, each)
    added = (await _counts(place)).since(before)
    _vacuum(place.address)
    grown = (await _counts(place)).since(before)
    cost = {
        name: (value - place.idle.get(name, 0.0) * added["at"]) / count
        for name, value in added.items()
    }
    statements = await _logged(place, chats, each)
    runs_it = "the program" if place.worker is None else "a worker"
    tools = "with two tool calls" if agent is TOOLS else "without tools"
    claim = f"a turn {tools}, run by {runs_it}"
    figures = [
        Figure(claim, "transactions", cost["commits"], ""),
        Figure(claim, "statements", statements, ""),
        Figure(claim, "entries of the log", cost["entries"], ""),
        Figure(claim, "rows written by perdure", cost["rows"], ""),
        Figure(claim, "WAL", cost["wal"], "B"),
        Figure(claim, "growth of the database", grown["size"] / count, "B"),
        Figure(claim, "bodies of the turn's entries", cost["bodies"], "B"),
        Figure(claim, "CPU time of the process that runs the turn", cost["process_ms"], "ms"),
        Figure(claim, "CPU time of the server's processes", cost["server_ms"], "ms"),
    ]
    if place.worker is None:
        return figures
    return [
        *figures,
        Figure(claim, "rows written by DBOS", cost["dbos_rows"], ""),
        Figure(claim, "growth by rows of DBOS, for ten minutes", grown["dbos_size"] / count, "B"),
    ]


async def _logged(place: _Place, chats: list[Chat], each: int) -> float:
    """Return the number of statements of a turn."""
    few = min(each, 10)
    began = time.monotonic()
    with _statements(place) as counted:
        await _batch(chats, few, 2 * each)
    took = time.monotonic() - began
    return (counted[0] - place.idle.get("statements", 0.0) * took) / (few * len(chats))


async def _batch(chats: list[Chat], count: int, first: int) -> None:
    async def turns(chat: Chat, offset: int) -> None:
        for number in range(count):
            await chat.send(message(1_000 * offset + first + number))

    await asyncio.gather(*(turns(chat, offset) for offset, chat in enumerate(chats)))


# ---------------------------------------------------------------- memory


async def _memory(run: Run, server: PostgresServer) -> list[Figure]:
    """Measure the memory of a worker per idle session, and per session whose tool runs."""
    count = run.count(SESSIONS)
    address = server.new_database()
    options = ("--slots", str(count))

    async def all_run() -> bool:
        with psycopg.connect(address, autocommit=True) as db:
            return bool(_row(db, "SELECT max(running) = %s FROM perdure.worker", count)[0])

    with (
        tempfile.TemporaryDirectory() as folder,
        workers(1, address, Path(folder), *options, factory=FACTORY) as (worker,),
    ):
        async with perdure.open(address) as store, runtime(store, "workers") as turns:
            started_kb = resident_kb(worker.pid)
            await _sessions(turns, count)
            warm_kb = resident_kb(worker.pid)
            await _sessions(turns, count)
            idle_kb = resident_kb(worker.pid)
            for _ in range(count):
                (await turns.start(LONG)).send(message(0))
            await until(all_run)
            open_kb = resident_kb(worker.pid)
            await turns.suspend()  # closing would wait for the tools
    claim = "memory of a worker"
    return [
        Figure(claim, "after its start", started_kb / 1024, "MiB"),
        Figure(claim, f"after a turn in each of {count} sessions", warm_kb / 1024, "MiB"),
        Figure(
            claim,
            "for each session that is idle after its turn",
            (idle_kb - warm_kb) / count,
            "KiB",
        ),
        Figure(claim, "for each running turn", (open_kb - idle_kb) / count, "KiB"),
    ]


async def _sessions(turns: Runtime, count: int) -> None:
    async def one(number: int) -> None:
        await (await turns.start(PLAIN)).send(message(number))

    for first in range(0, count, AT_ONCE):
        await asyncio.gather(*(one(number) for number in range(first, first + AT_ONCE)))


def resident_kb(pid: int) -> float:
    """Return the memory of a process in kilobytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return float(status.partition("VmRSS:")[2].split()[0])


# ---------------------------------------------------------------- counting


async def _counts(place: _Place) -> Counts:
    """Return the counters, after the server's processes have reported theirs."""
    worker = place.worker
    process_ms = cpu_ms(worker.pid) if worker else time.process_time() * 1000
    at = time.monotonic()
    await asyncio.sleep(SETTLE_S)
    with psycopg.connect(place.address, autocommit=True) as db:
        commits, wal = _row(db, _COUNTS)
        backends = {row[0]: cpu_ms(row[0]) for row in db.execute(_BACKENDS)}
        tables = {row[0]: row[1:] for row in db.execute(_TABLES)}
        size, bodies, entries = _row(db, _SIZES)
    dbos_rows, dbos_size = tables.get("perdure_work", (0, 0))
    return Counts(
        at=at,
        commits=commits,
        wal=float(wal),
        rows=float(tables["perdure"][0]),
        dbos_rows=float(dbos_rows),
        size=size,
        dbos_size=float(dbos_size),
        bodies=bodies or 0,
        entries=entries,
        process_ms=process_ms,
        backends=backends,
    )


def _row(db: psycopg.Connection[Any], statement: LiteralString, *values: object) -> Any:
    row = db.execute(statement, values).fetchone()
    assert row is not None
    return row


def _vacuum(address: str) -> None:
    with psycopg.connect(address, autocommit=True) as db:
        db.execute("VACUUM")


@contextmanager
def _statements(place: _Place) -> Generator[list[int]]:
    """Count the statements during the block, and append the number to the yielded list."""
    with psycopg.connect(place.server.address) as db:
        log = Path(_row(db, "SHOW data_directory")[0], "log")
    place.set("ALTER SYSTEM SET log_statement = 'all'")
    time.sleep(1)  # every process of the server has read it
    start = log.stat().st_size
    counted: list[int] = []
    yield counted
    counted.append(len(_STATEMENT.findall(log.read_bytes()[start:].decode())))
    place.set("ALTER SYSTEM RESET log_statement")
