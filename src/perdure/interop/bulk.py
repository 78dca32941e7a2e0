"""Import many files, several at a time. An error in one file does not stop the others.

Each file has its own commits. While some files are committed, other files are read and parsed, so
that a store can write several commits together. `BYTES_AT_ONCE` limits the bytes of files that are
in memory at the same time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TypeVar, Unpack

from perdure.errors import PerdureError
from perdure.interop.containers import sessions_in
from perdure.interop.formats.sources.content import Content, FileContent
from perdure.interop.formats.sources.parse_state import Progress
from perdure.interop.formats.sources.reader import BOUNDS
from perdure.interop.imports import ImportOptions, import_source
from perdure.interop.reports import FileOutcome, ImportReport
from perdure.stores.access.cancellation import cancel_all
from perdure.stores.session_store import SessionStore

FILES_AT_ONCE = 8
BYTES_AT_ONCE = 16 * 1024 * 1024

Told = Callable[[Path, int], None]
"""A callback that gets a file's path and the number of bytes read so far.

Any thread may call the callback.
"""


async def import_files(
    store: SessionStore,
    paths: Iterable[Path],
    *,
    told: Told | None = None,
    **options: Unpack[ImportOptions],
) -> AsyncGenerator[FileOutcome]:
    """Import each session in the files at `paths` with `import_source`.

    Shape: one outcome per file, in the order of `paths`; a file with several sessions has one
    outcome per session. If the caller closes the generator early, the running imports are
    cancelled. Imports whose outcomes were already yielded remain in the store.
    """

    async def outcomes_of(path: Path) -> list[FileOutcome]:
        progress = None if told is None else _progress_of(path, told)
        try:
            with await opened(path) as content:
                imported = import_content(store, content, progress=progress, **options)
                return [_outcome(path, each) async for each in imported]
        except PerdureError as error:
            return [FileOutcome(path, error=error)]

    jobs = ((held_bytes(size_of(path)), partial(outcomes_of, path)) for path in paths)
    async with aclosing(in_order(jobs)) as found:
        async for outcomes in found:
            for outcome in outcomes:
                yield outcome


async def opened(path: Path) -> FileContent:
    """Open the file at `path` in a thread. If the caller is cancelled meanwhile, close the file.

    Raises: FormatError if the file cannot be read.
    """
    opening = asyncio.get_running_loop().run_in_executor(None, FileContent, path)
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close)
        raise


def _close(opening: asyncio.Future[FileContent]) -> None:
    if opening.exception() is None:
        opening.result().close()


async def import_content(
    store: SessionStore,
    content: FileContent,
    *,
    progress: Progress | None = None,
    **options: Unpack[ImportOptions],
) -> AsyncIterator[ImportReport | PerdureError]:
    """Import the session in `content`, or each session if `content` has several.

    Shape: the call yields, for each session, the report or the error.
    Raises: the errors of `import_source`, if `content` is one session or cannot be read at all.
    """
    format = options.get("format", "auto")
    sessions = await asyncio.to_thread(sessions_in, content, format)
    if sessions is None:
        yield await import_source(store, content, progress=progress, **options)
        return
    try:
        while (found := await asyncio.to_thread(next, sessions, None)) is not None:
            yield await _import_each(store, found, options)
    finally:
        await asyncio.to_thread(sessions.close)
    if progress is not None:
        progress(content.length, content.length)


async def _import_each(
    store: SessionStore, found: Content | PerdureError, options: ImportOptions
) -> ImportReport | PerdureError:
    if isinstance(found, PerdureError):
        return found
    try:
        return await import_source(store, found, **options)
    except PerdureError as error:
        return error


def _outcome(path: Path, imported: ImportReport | PerdureError) -> FileOutcome:
    if isinstance(imported, PerdureError):
        return FileOutcome(path, error=imported)
    return FileOutcome(path, imported)


def _progress_of(path: Path, told: Told) -> Progress:
    return lambda read, _total: told(path, read)


Result = TypeVar("Result")
Job = tuple[int, Callable[[], Coroutine[None, None, Result]]]
"""The number of bytes that the job needs in memory, and the function that runs the job."""


async def in_order(jobs: Iterable[Job[Result]]) -> AsyncGenerator[Result]:
    """Run several of `jobs` at a time, and yield their results in the order of `jobs`."""
    waiting: deque[tuple[int, asyncio.Task[Result]]] = deque()
    under_way = 0
    try:
        for size, start in jobs:
            while waiting and (len(waiting) >= FILES_AT_ONCE or under_way + size > BYTES_AT_ONCE):
                yield await waiting[0][1]
                under_way -= waiting.popleft()[0]
            under_way += size
            waiting.append((size, asyncio.create_task(start())))
        while waiting:
            yield await waiting[0][1]
            waiting.popleft()
    finally:
        await cancel_all(task for _, task in waiting)


def held_bytes(size: int) -> int:
    """Return how many bytes of a file of `size` bytes are in memory during its import."""
    return min(size, BOUNDS.whole_bytes + BOUNDS.piece_bytes)


def size_of(path: Path) -> int:
    """Return the size of the file at `path`; 0 if it cannot be read."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
