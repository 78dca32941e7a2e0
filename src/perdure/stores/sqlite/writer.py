"""The only thread of this process that writes to a database file.

When the writer is free and has locked the file, all waiting requests run in one transaction (group
commit), so they share one ``fsync``. A rejected request does not affect other requests. After an
unexpected error the transaction is rolled back and its requests run one by one, so that only the
request that causes an error fails. The event loops that wait for results are woken once per
transaction. Callers that receive results together often make their next requests immediately, so
the writer collects the next requests to run them in one transaction again. If the writer took each
request as soon as it arrived, the writer's thread and the event loop would compete for Python's
global interpreter lock.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import suppress
from contextvars import Context
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import apsw
import msgspec

from perdure.errors import PerdureError, StoreCorrupt, StoreUnavailable
from perdure.stores.access.file_guard import FileGuard
from perdure.stores.access.process import running_loop
from perdure.stores.access.sqlite_connection import Connection
from perdure.stores.protocol import Durability
from perdure.stores.sqlite.connections import LOG_FILES, Site, check_version_number
from perdure.stores.sqlite.faults import NO_VALUES, meaning_of, no_value
from perdure.stores.sqlite.log.checkpoints import Checkpointer
from perdure.stores.sqlite.log.fsync import LogDoubt, LogSync
from perdure.stores.sqlite.migrate import version_of
from perdure.stores.sqlite.rows import Tables
from perdure.stores.wakeups import Place

T = TypeVar("T")

MAX_GROUP = 256
Outcome = tuple[object, BaseException | None]
Callback = Callable[["Answer[Any]"], object]


class Answer(Generic[T]):
    """An awaitable for one task, like a future, except that the waiting task continues immediately.

    An asyncio future schedules the waiting task for the next round of the loop, after the operating
    system is polled again. An `Answer` resumes the waiting task in the same round of the event loop
    that runs the answer's callback. Only the thread of the event loop uses an answer, except that
    the threads of the writer and of the readers read `is_cancelled`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_cancelled = False
        self._asyncio_future_blocking = False  # asyncio tasks recognize a future by this attribute
        self._loop = loop
        self._is_given = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._waiting: tuple[Callback, Context] | None = None

    def give(self, value: T | None, error: BaseException | None) -> None:
        """Set the outcome; the waiting task, unless cancelled, continues before this call ends."""
        if self.is_cancelled:
            return
        self._is_given = True
        self._value = value
        self._error = error
        if self._waiting is not None:
            callback, context = self._waiting
            context.run(callback, self)

    def __await__(self) -> Generator[Answer[T], None, T]:
        if not self._is_given:
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    # -- the future interface that tasks use

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of the task that awaits the answer."""
        return self._loop

    def add_done_callback(self, callback: Callback, *, context: Context) -> None:
        """Call `callback` in `context` with the outcome."""
        self._waiting = callback, context

    def cancel(self, msg: object = None) -> bool:
        """Cancel the waiting task; the request of the task might still run."""
        if self._is_given or self.is_cancelled:
            return False
        self.is_cancelled = True
        self._error = asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        if self._waiting is not None:
            callback, context = self._waiting
            self._loop.call_soon(callback, self, context=context)
        return True

    def result(self) -> Any:
        """Return the outcome, or raise the outcome if it is an error."""
        if self._error is not None:
            raise self._error
        return self._value


class _Job(msgspec.Struct, eq=False, gc=False):
    """A caller's request to run `work` in a transaction.

    `is_composite` means that the job can be rejected after it changed data.
    """

    work: Callable[[Tables], object]
    durability: Durability
    is_composite: bool
    loop: asyncio.AbstractEventLoop
    answer: Answer[Any]


def _nothing(_: Tables) -> None:
    """Do nothing.

    This function replaces the work of a finished job, so that the memory of the work is freed.
    """


class Writer:
    """Runs work on its own connection, on its own thread.

    After each committed transaction, the writer's thread calls `on_commit` with the streams that
    the transaction wrote to.
    """

    def __init__(
        self,
        site: Site,
        connect: Callable[[], Connection],
        on_commit: Callable[[Collection[Place]], None],
        doubt: LogDoubt,
    ) -> None:
        self.damage: str | None = None
        self._path = site.path
        self._wait = site.wait
        self._tables = Tables(connect())
        self._guard = FileGuard(site.path, LOG_FILES)
        self._on_commit = on_commit
        self._checkpointer = Checkpointer(connect)
        self._tables.db.set_wal_hook(self._after_commit)
        self._tables.run(
            "PRAGMA synchronous = NORMAL"
        )  # for durability "full" the log is synced (log/fsync.py)
        self._doubt = doubt
        self._log = LogSync(self._tables.db, doubt)
        self._version = -1  # of the data, after the last commit of this connection
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._asking = threading.Lock()  # after the end marker nothing is queued
        self._held: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        self._is_closed = False
        self._is_ending = False  # the writer's thread has seen the end marker
        self._thread = threading.Thread(target=self._run, name="perdure-writer", daemon=True)
        self._thread.start()

    async def run(
        self,
        work: Callable[[Tables], T],
        durability: Durability,
        *,
        is_composite: bool = False,
    ) -> T:
        """Run `work` in a transaction; return after the commit."""
        loop = running_loop()
        answer: Answer[T] = Answer(loop)
        job = _Job(work, durability, is_composite, loop, answer)
        with self._asking:
            if self._is_closed:
                raise StoreUnavailable(str(self._path), "it is closed")
            held = self._held.get(loop)
            if held is None:
                self._queue.put(job)
            else:
                held.append(job)
        return await answer

    def close(self) -> None:
        """Finish waiting requests, then close the file. The call blocks."""
        with self._asking:
            self._is_closed = True
            for held in self._held.values():
                self._put_all(held)
            self._queue.put(None)
        self._thread.join()
        self._checkpointer.close()
        self._tables.db.close()

    # -- on the thread of a loop

    def _hand_over(
        self, loop: asyncio.AbstractEventLoop, delivered: Sequence[tuple[_Job, Outcome]]
    ) -> None:
        """Deliver the outcomes to the callers.

        If there are several outcomes, collect the requests that the callers make next, and queue
        these requests together in the next round of the event loop.
        """
        if len(delivered) > 1 and loop not in self._held:
            with self._asking:
                self._held[loop] = []
            loop.call_soon(self._let_go, loop)
        for at, (job, (value, error)) in enumerate(delivered, 1):
            try:
                job.answer.give(value, error)
            except (
                BaseException
            ):  # of a task that ends the program; the others still get their outcomes
                loop.call_soon(self._hand_over, loop, delivered[at:])
                raise

    def _let_go(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._asking:
            self._put_all(self._held.pop(loop))

    def _put_all(self, held: list[_Job]) -> None:
        for job in held:
            self._queue.put(job)
        held.clear()

    # -- on the writer's thread

    def _run(self) -> None:
        while not self._is_ending:
            group: list[_Job] = []
            self._gather(group, is_waiting=True)
            if group:
                self._carry_out(group)

    def _gather(self, group: list[_Job], *, is_waiting: bool = False) -> None:
        """Add the waiting jobs to `group`.

        If `is_waiting` is True and `group` is empty, wait until there is a job or the writer is
        closed.
        """
        queue = self._queue
        while len(group) < MAX_GROUP and not self._is_ending:
            if (group or not is_waiting) and self._is_queue_empty():
                return
            job = queue.get()
            if job is None:
                self._is_ending = True
            elif not job.answer.is_cancelled:
                group.append(job)

    def _is_queue_empty(self) -> bool:
        """Return whether no job waits.

        If collected requests are being queued at this moment, wait until all of them are queued.
        """
        if not self._queue.empty():
            return False
        with self._asking:
            return self._queue.empty()

    def _carry_out(self, group: list[_Job]) -> None:
        outcomes = self._attempt(group, is_open=True)
        if outcomes is None:
            for job in group:
                self._deliver([job], self._attempt([job]) or [])
        else:
            self._deliver(group, outcomes)

    def _attempt(self, group: list[_Job], *, is_open: bool = False) -> list[Outcome] | None:
        """Run the jobs and return their outcomes.

        Returns None if the group failed, but some of its jobs may succeed alone. After None, the
        caller runs each job alone.

        If `is_open` is True, the group also receives jobs that arrive while another process locks
        the file.
        """
        try:
            if self.damage is not None:
                raise StoreCorrupt(str(self._path), self.damage)
            outcomes = self._transact(group, is_open=is_open)
        except Exception as error:  # noqa: BLE001 - whatever it is, its caller gets it
            self._roll_back()
            if len(group) > 1 and not isinstance(error, _InDoubt | apsw.BusyError):
                return None
            return [(None, self._meaning(error)) for _ in group]  # each caller gets its own error
        written, self._tables.written = self._tables.written, set()
        if written:
            self._on_commit(written)
        return outcomes

    def _transact(self, group: list[_Job], *, is_open: bool) -> list[Outcome]:
        run, db = self._tables.run, self._tables.db
        if self._doubt.is_cast:
            self._log.begin_anew()
        run("BEGIN IMMEDIATE")
        if is_open and not self._queue.empty():
            self._gather(group)
        if db.data_version() != self._version:
            check_version_number(self._path, version_of(db))  # a newer perdure may have migrated it
            self._tables.forget_standing(is_doubted=True)
        outcomes = [self._one(job) for job in group]
        self._guard.check()
        try:
            run("COMMIT")
            self._version = db.data_version()
            if any(job.durability == "full" for job in group):
                self._log.sync()
        except (apsw.IOError, apsw.BusyError) as error:
            raise _InDoubt from error
        return outcomes

    def _one(self, job: _Job) -> Outcome:
        """Run one job; return a rejection as its outcome, and raise any other error."""
        run = self._tables.run
        if job.is_composite:
            run("SAVEPOINT job")
        try:
            outcome: Outcome = (job.work(self._tables), None)
        except PerdureError as refusal:
            if job.is_composite:
                run("ROLLBACK TO job")
                self._tables.forget()
            outcome = (None, refusal)
        if job.is_composite:
            run("RELEASE job")
        return outcome

    def _roll_back(self) -> None:
        self._tables.forget()
        if self._tables.db.in_transaction:
            with suppress(apsw.Error):  # the next BEGIN reports the connection's error
                self._tables.run("ROLLBACK")

    def _meaning(self, error: BaseException) -> BaseException:
        cause = error.__cause__ if isinstance(error, _InDoubt) else error
        if isinstance(cause, NO_VALUES):
            found = no_value(cause, self._path)
            found.__cause__ = cause
            return found
        if not isinstance(cause, apsw.Error):
            return error
        system_errno = self._tables.db.system_errno
        meaning = meaning_of(cause, self._path, system_errno, self._wait.limit_s)
        meaning.__cause__ = cause
        if isinstance(meaning, StoreCorrupt):
            self.damage = meaning.reason
        return meaning

    def _deliver(self, group: Sequence[_Job], outcomes: Sequence[Outcome]) -> None:
        for job in group:
            job.work = _nothing  # free its data before its caller continues
        if len(group) == 1:
            self._wake(group[0].loop, [(group[0], outcomes[0])])
            return
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Job, Outcome]]] = {}
        for job, outcome in zip(group, outcomes, strict=True):
            by_loop.setdefault(job.loop, []).append((job, outcome))
        for loop, delivered in by_loop.items():
            self._wake(loop, delivered)

    def _wake(
        self, loop: asyncio.AbstractEventLoop, delivered: Sequence[tuple[_Job, Outcome]]
    ) -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing waits any more
            loop.call_soon_threadsafe(self._hand_over, loop, delivered)

    def _after_commit(self, _db: Connection, _name: str, pages: int) -> int:
        self._checkpointer.grown(pages)
        return apsw.SQLITE_OK


class _InDoubt(Exception):
    """The disk failed at the end of a commit, so the outcome is unknown."""
