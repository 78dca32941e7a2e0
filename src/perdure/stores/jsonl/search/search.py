"""Search a folder: update the index, then query it. Without an index, scan the session files.

File access runs on the handle's thread in short steps. One process at a time updates the index;
other processes wait for the update.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from perdure.errors import (
    SearchIndexDamaged,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    Unsupported,
)
from perdure.session.search.parts.pages import DAMAGE
from perdure.session.search.query import Sought, sought_in
from perdure.session.search.values import Hit, SearchQuery
from perdure.stores.jsonl.lines import BACKEND
from perdure.stores.jsonl.search.file_table import INDEXED
from perdure.stores.jsonl.search.index_file import BUILDING, IndexTables, IndexUnusable
from perdure.stores.jsonl.search.indexer import Index, Step
from perdure.stores.jsonl.search.log import FolderLog, Untrue
from perdure.stores.jsonl.search.positions import catch_up
from perdure.stores.jsonl.search.recall_scan import RecallScan
from perdure.stores.jsonl.search.unindexed import Search
from perdure.stores.protocol import OnProgress
from perdure.stores.search import recall_plan, search_plan
from perdure.stores.search.recall_plan import Asked, Recalled
from perdure.stores.search.rows import run_now
from perdure.stores.search.sqlite_tables import SqliteReader, loose_count, text_count
from perdure.stores.search.vectors import Unembedded, VectorModel, VectorState

WAIT_S = 0.02
STUCK_S = 20.0
"""How long a process may update the index without a change, before it counts as stopped."""

MOST_IDLE = 50
"""The index update ends after this number of steps in a row that could not be stored."""

MOST_BEHIND = 512
"""If more entries than this are missing in the index after an update, the files are scanned."""

TRIES = 3
"""Number of times that a query is repeated because the index had to be rebuilt."""

_DAMAGED = (IndexUnusable, SearchIndexDamaged, *DAMAGE)
_CANNOT = (StoreReadOnly, StoreFull, StoreUnavailable)

T = TypeVar("T")


class Run(Protocol):
    """Runs `work` on the handle's thread."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class _Moment(NamedTuple):
    """The index and the files, read at the same moment."""

    reader: SqliteReader
    log: FolderLog
    tables: IndexTables


class Searches:
    """`SearchService` of one handle: uses an index, or a scan if no index can be written."""

    def __init__(self, index: Index, run: Run) -> None:
        self._index = index
        self._run = run
        self._stuck: tuple[object, ...] | None = None  # the index while another process was stuck
        self._scanned = RecallScan(index.sessions, index.feed)

    async def hits(self, query: SearchQuery, on_progress: OnProgress | None = None) -> list[Hit]:
        """Implement ``SearchService.hits``."""
        sought = sought_in(query.text)

        def ask(moment: _Moment) -> list[Hit]:
            return run_now(search_plan.hits(moment.reader, moment.log, query, sought))

        found = await self._ask(ask, sought)
        return await self._scan(query, on_progress) if found is None else found

    async def recall(self, asked: Asked) -> list[Recalled]:
        """Implement ``SearchService.recall``."""

        def ask(moment: _Moment) -> list[Recalled]:
            cache = moment.tables.cache
            moment.log.check_added(cache)
            plan = recall_plan.recalled(moment.reader, moment.log, None, cache, asked)
            return run_now(plan)

        found = await self._ask(ask)
        if found is None:
            while await self._run(self._scanned.step):
                pass
            found = await self._run(lambda: self._scanned.recalled(asked))
        return found

    async def unembedded(self, model: VectorModel) -> Unembedded:
        raise Unsupported("vectors", BACKEND)

    async def add_vectors(
        self, model: VectorModel, span: tuple[int, int], vectors: Mapping[int, bytes]
    ) -> bool:
        raise Unsupported("vectors", BACKEND)

    async def vector_models(self) -> dict[VectorModel, VectorState]:
        raise Unsupported("vectors", BACKEND)

    async def drop_vectors(self, model: VectorModel) -> None:
        raise Unsupported("vectors", BACKEND)

    async def index(self, on_progress: OnProgress | None = None) -> None:
        """Implement ``SearchService.index``. The call can also raise StoreUnavailable."""
        if await self._run(self._is_due):
            async with self._building():
                await self._index_or_rebuild(on_progress)

    async def reindex(self, on_progress: OnProgress | None = None) -> int:
        """Implement ``SearchService.reindex``."""
        async with self._building():
            await self._run(self._index.clear)
            await self._index_or_rebuild(on_progress)
        return await self._run(self._text_count)

    # -- updates

    def _is_due(self) -> bool:
        try:
            with self._index.file.reading() as tables:
                _, scanned = self._index.scan(tables)
                return scanned.is_placed and scanned.is_due(loose_count(tables, INDEXED))
        except _DAMAGED:
            return True

    def _text_count(self) -> int:
        with self._index.file.reading() as tables:
            return text_count(tables, INDEXED)

    @asynccontextmanager
    async def _building(self) -> AsyncGenerator[None]:
        lock = await self._turn()
        try:
            yield
        finally:
            os.close(lock)

    async def _turn(self) -> int:
        """Wait for the lock and return it.

        Raises: StoreUnavailable if the holder of the lock makes no progress.
        """
        loop = asyncio.get_running_loop()
        until, seen = loop.time() + STUCK_S, None
        while (lock := await self._lock()) is None:
            now = await self._run(self._index.file.stamp)
            if now != seen:
                until, seen = loop.time() + STUCK_S, now
            if now == self._stuck or loop.time() > until:  # wait only once for the same process
                self._stuck = now
                reason = (
                    "another process is updating the search index and makes no progress; if it "
                    "was stopped, end it"
                )
                raise StoreUnavailable(str(self._index.file.path), reason)
            await asyncio.sleep(WAIT_S)
        self._stuck = None
        return lock

    async def _lock(self) -> int | None:
        """Return the acquired lock; None if another process holds the lock.

        If the call is cancelled, the lock is released.
        """
        trying = asyncio.ensure_future(self._run(self._try_lock))
        try:
            return await asyncio.shield(trying)
        except asyncio.CancelledError:
            trying.add_done_callback(_release)
            raise

    def _try_lock(self) -> int | None:
        with self._index.file.hold_lock():
            self._index.file.make()  # raises, if it cannot be written, before anything is read
        return self._index.sessions.folder.try_lock(BUILDING, "")

    async def _index_or_rebuild(self, on_progress: OnProgress | None) -> None:
        """Index all entries; rebuild the index if it is damaged. Raises: SearchIndexDamaged."""
        try:
            await self._index_all(on_progress)
        except _DAMAGED:
            await self._run(self._index.clear)
            try:
                await self._index_all(on_progress)
            except _DAMAGED as error:
                raise SearchIndexDamaged(str(self._index.file.path)) from error

    async def _index_all(self, on_progress: OnProgress | None) -> None:
        """Index all current entries; entries added meanwhile may wait for the next search."""
        done = idle = 0
        total: int | None = None
        while idle < MOST_IDLE and (step := await self._run(self._index.next_step)) is not None:
            total = step.behind if total is None else total
            if done >= total and step.behind:
                break
            taken = await self._run_step(step)
            idle = 0 if taken else idle + 1
            done += taken
            if on_progress is not None and total and taken:
                on_progress(min(done, total), total)
        await self._run(self._settle)

    def _settle(self) -> None:
        with self._index.file.hold_lock():
            self._index.file.settle()

    async def _run_step(self, step: Step) -> int:
        reading = step.read()
        while await self._run(lambda: next(reading, None)) is not None:
            pass
        await asyncio.to_thread(step.build)
        return await self._run(step.put)

    # -- queries

    async def _ask(self, ask: Callable[[_Moment], T], sought: Sought | None = None) -> T | None:
        """Return the result of `ask` on the index; None if there is no usable index.

        If the index is damaged, it is rebuilt.
        Raises: SearchIndexDamaged if the index is still damaged after a rebuild.
        """
        damage: Exception | None = None
        try:
            for _ in range(TRIES):
                try:
                    return await self._ask_updated(ask, sought)
                except Untrue as error:
                    await self._run(partial(self._index.drop, error.stream))
                except _DAMAGED as error:
                    damage = error
                    await self._run(self._index.clear)
        except _CANNOT:
            return None
        if damage is not None:
            raise SearchIndexDamaged(str(self._index.file.path)) from damage
        return None

    async def _ask_updated(self, ask: Callable[[_Moment], T], sought: Sought | None) -> T | None:
        found = await self._run(lambda: self._ask_now(ask, sought, is_updated=False))
        if found is None:
            with suppress(*_CANNOT):
                await self.index(None)
            found = await self._run(lambda: self._ask_now(ask, sought, is_updated=True))
        return found

    def _ask_now(
        self, ask: Callable[[_Moment], T], sought: Sought | None, *, is_updated: bool
    ) -> T | None:
        """Return the result of `ask` on the index; None if the index must be updated first."""
        index = self._index
        with index.file.reading() as tables:
            catalogue, scanned = index.scan(tables)
            if scanned.stale or not scanned.is_placed or scanned.count > MOST_BEHIND:
                return None
            if not is_updated and scanned.is_due(loose_count(tables, INDEXED)):
                return None
            log = FolderLog(index.sessions, tables, catalogue, scanned, sought)
            return ask(_Moment(SqliteReader(tables, INDEXED), log, tables))

    async def _scan(self, query: SearchQuery, on_progress: OnProgress | None) -> list[Hit]:
        sessions, feed = self._index.sessions, self._index.feed
        search = Search(sessions, feed, lambda: catch_up(sessions, feed), query)
        while await self._run(search.step):
            search.tell(on_progress)
        search.tell(on_progress)
        return await self._run(search.hits)


def _release(trying: asyncio.Future[int | None]) -> None:
    lock = None if trying.cancelled() or trying.exception() else trying.result()
    if lock is not None:
        os.close(lock)
