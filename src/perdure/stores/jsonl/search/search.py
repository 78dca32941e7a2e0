"""Searching a folder: the index is brought up to date, and asked; without one, all is read.

Work on files is done on the handle's thread, a little at a time. One process at a time makes the
index grow; who finds another at it waits for it, as for the index itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Protocol, TypeVar

from perdure.errors import SearchIndexDamaged, StoreFull, StoreReadOnly, StoreUnavailable
from perdure.session.search.parts.pages import DAMAGE
from perdure.session.search.query import sought_in
from perdure.session.search.values import Hit, SearchQuery
from perdure.stores.jsonl.disk.folder import Stamp
from perdure.stores.jsonl.search.files import BUILDING
from perdure.stores.jsonl.search.index_query import Untrue, hits_by
from perdure.stores.jsonl.search.indexer import Index, Step
from perdure.stores.jsonl.search.part_file import PartGone
from perdure.stores.jsonl.search.positions import catch_up
from perdure.stores.jsonl.search.unindexed import Search
from perdure.stores.protocol import OnProgress

WAIT_S = 0.02
STUCK_S = 20.0
"""Who indexes puts a part in every second or so; one who has not for so long was stopped."""

MOST_IDLE = 50
"""After so many steps that came to nothing, since others changed what they were about, it stops."""

_CANNOT = (StoreReadOnly, StoreFull, StoreUnavailable)

T = TypeVar("T")


class Run(Protocol):
    """Does something on the handle's thread."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class Searches:
    """The searches of one handle."""

    def __init__(self, index: Index, run: Run) -> None:
        self._index = index
        self._run = run
        self._stuck: tuple[Stamp | None] | None = None  # the index where another was found stuck

    async def search(self, query: SearchQuery, on_progress: OnProgress | None) -> list[Hit]:
        """What ``ScanSearchService.scan`` promises."""
        sought_in(query.text)
        try:
            found = await self._query_index(query, is_best=False)
            if found is None:
                with suppress(*_CANNOT):
                    await self.index(None)
                found = await self._query_index(query, is_best=True)
        except _CANNOT:
            found = None
        return await self._scan(query, on_progress) if found is None else found

    async def index(self, on_progress: OnProgress | None) -> None:
        """As ``IndexedSearchService.index``. Raises: also StoreUnavailable, if another is stuck."""
        if await self._run(self._is_due):
            async with self._building():
                await self._index_all(on_progress)

    async def reindex(self, on_progress: OnProgress | None) -> int:
        """What ``IndexedSearchService.reindex`` promises."""
        async with self._building():
            await self._run(self._index.clear)
            await self._index_all(on_progress)
        return await self._run(lambda: self._index.catalogue().texts)

    # -- making it grow

    def _is_due(self) -> bool:
        _, survey = self._index.survey()
        return survey.is_due and survey.is_placed

    @asynccontextmanager
    async def _building(self) -> AsyncGenerator[None]:
        lock = await self._turn()
        try:
            yield
        finally:
            os.close(lock)

    async def _turn(self) -> int:
        """The lock, once nobody else has it. Raises: StoreUnavailable where nothing comes of it."""
        loop = asyncio.get_running_loop()
        until, seen = loop.time() + STUCK_S, None
        while (lock := await self._lock()) is None:
            now = (await self._run(self._index.files.stamp),)
            if now != seen:
                until, seen = loop.time() + STUCK_S, now
            if now == self._stuck or loop.time() > until:  # he is not waited for twice
                self._stuck = now
                path = str(self._index.files.path)
                told = "who is indexing it gets nothing done; if that process was stopped, end it"
                raise StoreUnavailable(path, told)
            await asyncio.sleep(WAIT_S)
        self._stuck = None
        return lock

    async def _lock(self) -> int | None:
        """The lock, if nobody has it. Who is cancelled as it is taken lets go of it."""
        trying = asyncio.ensure_future(self._run(self._try_lock))
        try:
            return await asyncio.shield(trying)
        except asyncio.CancelledError:
            trying.add_done_callback(_let_go)
            raise

    def _try_lock(self) -> int | None:
        self._index.files.make()  # who cannot is told before anything was read
        return self._index.shelf.folder.try_lock(BUILDING, "")

    async def _index_all(self, on_progress: OnProgress | None) -> None:
        """Index what is behind now; what comes meanwhile may wait for the next search."""
        done = idle = 0
        total: int | None = None
        while idle < MOST_IDLE and (step := await self._run(self._next)) is not None:
            total = step.behind if total is None else total
            if done >= total and not step.is_cleaning:
                break
            taken = await self._run_step(step)
            idle = 0 if taken else idle + 1
            done += taken
            if on_progress is not None and total:
                on_progress(min(done, total), total)

    def _next(self) -> Step | None:
        catalogue, survey = self._index.survey()
        is_left = (survey.behind or survey.stale) and survey.is_placed
        return Step(self._index, catalogue, survey) if is_left else None

    async def _run_step(self, step: Step) -> int:
        reading = step.read()
        try:
            while await self._run(lambda: next(reading, None)) is not None:
                pass
            await asyncio.to_thread(step.make)
            return await self._run(step.put)
        except PartGone:
            await self._run(self._index.clear)
            return 0
        except DAMAGE as error:
            raise self._damage_error() from error

    # -- asking it

    async def _query_index(self, query: SearchQuery, *, is_best: bool) -> list[Hit] | None:
        """What the index says; None where it is not up to date, unless it `is_best`."""
        for _ in range(3):
            try:
                return await self._run(lambda: hits_by(self._index, query, is_best=is_best))
            except PartGone:  # another made it anew meanwhile; or it was lost
                await self._run(self._index.drop_lost)
                await self.index(None)
            except Untrue as error:
                await self._run(partial(self._index.remove, {error.stream}, _nothing))
                await self.index(None)
            except (*DAMAGE, OSError) as error:
                raise self._damage_error() from error
        return None

    def _damage_error(self) -> SearchIndexDamaged:
        return SearchIndexDamaged(str(self._index.files.path))

    async def _scan(self, query: SearchQuery, on_progress: OnProgress | None) -> list[Hit]:
        shelf, feed = self._index.shelf, self._index.feed
        search = Search(shelf, feed, lambda: catch_up(shelf, feed), query)
        while await self._run(search.step):
            search.tell(on_progress)
        search.tell(on_progress)
        return await self._run(search.hits)


def _let_go(trying: asyncio.Future[int | None]) -> None:
    lock = None if trying.cancelled() or trying.exception() else trying.result()
    if lock is not None:
        os.close(lock)


def _nothing() -> None:
    """Its file stays."""
