"""The LangGraph checkpoint saver, implemented with a perdure store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

import perdure
from perdure.adapters.langgraph.threads import Threads
from perdure.adapters.store_loop import StoreLoop

T = TypeVar("T")


class AsyncSaver(BaseCheckpointSaver[Any]):
    """The async methods of `PerdureSaver`.

    Channel versions are numbers; in a thread that was copied from LangGraph's own savers, they are
    texts.
    """

    def __init__(
        self,
        store: perdure.Store | perdure.blocking.Store,
        *,
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=serde)
        self._loop = StoreLoop(store)
        self._made = Threads(self._loop.store, self.serde)

    def get_next_version(self, current: int | str | None, channel: None) -> int | str:
        if isinstance(current, str):  # of another saver: 32 digits, and a fraction
            return f"{int(current.partition('.')[0]) + 1:032}.{0:016}"
        return 1 if current is None else current + 1

    @property
    def _threads(self) -> Threads:
        """The threads, with this saver's serializer.

        LangGraph's `with_allowlist` returns a copy of the saver with another serializer.
        """
        if self._made.serde is not self.serde:
            self._made = Threads(self._loop.store, self.serde)
        return self._made

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self._loop.call(self._threads.get(config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        for found in await self._loop.call(self._threads.list_of(config, filter, before, limit)):
            yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await self._loop.call(self._threads.put(config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        await self._loop.call(self._threads.put_writes(config, writes, task_id, task_path))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._loop.call(self._threads.copy(source_thread_id, target_thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        await self._loop.call(self._threads.delete(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._loop.call(self._threads.delete_runs(run_ids))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await self._loop.call(self._threads.prune(thread_ids, strategy))


class PerdureSaver(AsyncSaver):
    """Checkpoints in a store of perdure: each thread is a session.

    `store` is a `perdure.blocking.Store`, which works on any event loop and thread, or a
    `perdure.Store`. A `perdure.Store` supports only the async calls, on the event loop that opened
    it. `durability`, encryption and namespaces are settings of the store.
    """

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._wait(self._threads.get(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        yield from self._wait(self._threads.list_of(config, filter, before, limit))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self._wait(self._threads.put(config, checkpoint, metadata, new_versions))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        self._wait(self._threads.put_writes(config, writes, task_id, task_path))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._wait(self._threads.copy(source_thread_id, target_thread_id))

    def delete_thread(self, thread_id: str) -> None:
        self._wait(self._threads.delete(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self._wait(self._threads.delete_runs(run_ids))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self._wait(self._threads.prune(thread_ids, strategy))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.wait(work, "saver")
