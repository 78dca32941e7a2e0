"""A namespace of an open folder of session files: what the store and its services share."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from perdure.codecs.protocol import Codec
from perdure.errors import (
    SessionNotFound,
)
from perdure.session.clock import Clock, RandomSource
from perdure.session.ids import StreamId
from perdure.stores.jsonl.append import Appender
from perdure.stores.jsonl.commit_look import CommitLook
from perdure.stores.jsonl.disk.feed import Feed
from perdure.stores.jsonl.disk.folder import Folder, namespace_folder
from perdure.stores.jsonl.disk.thread import FolderThread
from perdure.stores.jsonl.index import Log
from perdure.stores.jsonl.retention.erase import Eraser
from perdure.stores.jsonl.retention.limits import Limits
from perdure.stores.jsonl.search.indexer import Index
from perdure.stores.jsonl.search.positions import catch_up
from perdure.stores.jsonl.search.search import Searches
from perdure.stores.jsonl.session_index import FileState as Kept
from perdure.stores.jsonl.session_index import SessionIndex
from perdure.stores.protocol import (
    Durability,
)
from perdure.stores.wakeups import Look, Watcher

SCHEME = "jsonl:///"

T = TypeVar("T")


class JsonlHandle:
    """A namespace of a folder of session files, until it is closed."""

    def __init__(
        self,
        root: Path,
        *,
        codec: Codec,
        namespace: str,
        durability: Durability,
        clock: Clock,
        random: RandomSource,
        lock_timeout_s: float,
    ) -> None:
        self.address = f"{SCHEME}{quote(str(root))}?dialect={codec.name}"
        self.namespace = namespace
        self.durability: Durability = durability
        self.clock, self.random = clock, random
        path, is_synced = namespace_folder(root, namespace), durability == "full"
        self.folder = Folder(path, is_synced=is_synced, lock_timeout_s=lock_timeout_s)
        self.codec = codec
        self.shelf = SessionIndex(self.folder, codec)
        self.feed = Feed(self.folder)
        self.limits = Limits(self.shelf)
        self.index = Index(self.shelf, self.feed)
        self.eraser = Eraser(self.shelf, self.feed, self.index, namespace)
        self.appender = Appender(self.shelf, self.feed, self.limits, random)
        self.thread = FolderThread(self.folder, self.address)
        self.searches = Searches(self.index, self.run)
        self.watcher = Watcher(self._looking)

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` on the thread of the handle."""
        return await self.thread.run(work)

    async def read(self, stream: StreamId, read: Callable[[Log], T]) -> T:
        """Run `read` with the log of `stream` on the thread. Raises: SessionNotFound."""
        return await self.run(lambda: read(self.log(stream)))

    @contextmanager
    def _looking(self) -> Generator[Look]:
        yield CommitLook(self.folder, self.feed, self.codec, self.namespace)

    # -- on the thread

    def log(self, stream: StreamId) -> Log:
        """Return the log of `stream`. Raises: SessionNotFound."""
        log = self.shelf.log(stream)
        if log is None:
            raise SessionNotFound(stream)
        return log

    def standing(self, stream: StreamId) -> Kept:
        """Return the state of the file of `stream`. Raises: SessionNotFound."""
        standing = self.shelf.standing(stream)
        if standing is None:
            raise SessionNotFound(stream)
        return standing

    def catch_up(self) -> None:
        """Give positions to what has none: what a tool wrote, or a process that died."""
        catch_up(self.shelf, self.feed)
