"""The threads of a store: finds, creates, copies and deletes the session of each thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

import perdure
from perdure.adapters.langgraph.checkpoints import COPIED, PendingWrite, StoredCheckpoint
from perdure.adapters.langgraph.thread import Thread
from perdure.adapters.open_sessions import create_newest, open_newest
from perdure.adapters.session_ids import session_ids_of
from perdure.errors import Erased, SessionExists, SessionNotFound, WrongArgument

PREFIX: Final = "lg"
"""A thread's session id begins with this prefix, the deletion count (unless 0), and a colon."""

THREAD: Final = "langgraph_thread"
"""Metadata key of the id of the thread."""

_BY: Final = "perdure.adapters.langgraph"

_THREADS: Final = 128
"""Maximum number of threads whose newest checkpoints are cached."""


class Threads:
    """The methods of a checkpoint saver, which run on the event loop of `store`."""

    def __init__(self, store: perdure.Store, serde: SerializerProtocol) -> None:
        self.serde = serde
        self._store = store
        self._threads: dict[str, Thread] = {}

    async def get(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that `config` names.

        If `config` names no checkpoint id, the newest checkpoint of the namespace is returned.
        """
        thread_id, ns, id = _thread_of(config), _ns_of(config) or "", get_checkpoint_id(config)
        thread = await self._current(thread_id)
        read = None if thread is None else await thread.cached.get(ns, id)
        if thread is None or read is None:
            return None
        return await self._tuple(thread_id, thread, read)

    async def _tuple(
        self, thread_id: str, thread: Thread, read: StoredCheckpoint
    ) -> CheckpointTuple:
        writes = [
            (each.task, each.channel, self.serde.loads_typed((each.type, each.data)))
            for each in await thread.cached.writes(read.ns, read.id)
        ]
        checkpoint, metadata = thread.reader.whole(read)
        return CheckpointTuple(
            config=_config(thread_id, read.ns, read.id),
            checkpoint=checkpoint,
            metadata=metadata,
            parent_config=None if read.parent is None else _config(thread_id, read.ns, read.parent),
            pending_writes=writes,
        )

    async def list_of(
        self,
        config: RunnableConfig | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Sequence[CheckpointTuple]:
        """Return the checkpoints that match `config`, `wanted` and `before`, newest id first."""
        thread_id = None if config is None else config.get("configurable", {}).get("thread_id")
        threads = await self._thread_ids() if thread_id is None else [str(thread_id)]
        ns = None if config is None else _ns_of(config)
        only = None if config is None else get_checkpoint_id(config)
        end = None if before is None else get_checkpoint_id(before)
        found: list[CheckpointTuple] = []
        for each in threads:
            if limit is not None and len(found) >= limit:
                break
            thread = await self._current(each)
            if thread is None:
                continue
            history = await thread.reader.history(ns)
            chosen: list[perdure.Entry] = []
            for (_, id), entry in history.keys.items():
                if limit is not None and len(found) + len(chosen) >= limit:
                    break
                if (only is not None and id != only) or (end is not None and id >= end):
                    continue
                metadata = await thread.reader.metadata(entry) if wanted else {}
                if all(metadata.get(key) == value for key, value in (wanted or {}).items()):
                    chosen.append(entry)
            # The oldest first: each is made from the one above it.
            made = [
                await self._tuple(each, thread, await thread.reader.read(entry, history))
                for entry in reversed(chosen)
            ]
            found += reversed(made)
        return found

    async def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint. Durable: the change is stored when this call returns."""
        thread_id, ns = _thread_of(config), _ns_of(config) or ""
        described = get_checkpoint_metadata(config, metadata)
        parent = get_checkpoint_id(config)
        await self._write(
            thread_id, lambda thread: thread.put(ns, parent, checkpoint, described, new_versions)
        )
        return _config(thread_id, ns, checkpoint["id"])

    async def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
    ) -> None:
        """Store pending writes of the checkpoint that `config` names."""
        made = [
            PendingWrite(
                task_id,
                task_path,
                WRITES_IDX_MAP.get(channel, index),
                channel,
                *self.serde.dumps_typed(value),
            )
            for index, (channel, value) in enumerate(writes)
        ]
        thread_id = _thread_of(config)
        id = get_checkpoint_id(config)
        if id is None:
            raise ValueError(
                "pending writes belong to a checkpoint: the config has no checkpoint_id"
            )
        if made:
            ns = _ns_of(config) or ""
            await self._write(thread_id, lambda thread: thread.put_writes(ns, id, made))

    async def _write(self, thread_id: str, work: Callable[[Thread], Awaitable[None]]) -> None:
        """Run `work` on a thread; if another process deletes the thread meanwhile, start again."""
        while True:
            thread = await self._create(thread_id)
            try:
                return await work(thread)
            except (Erased, SessionNotFound):
                self._threads.pop(thread_id, None)

    async def copy(self, source: str, target: str) -> None:
        """Copy the checkpoints and writes of a thread; fork its session if `target` is new."""
        thread = await self._current(source)
        if thread is None or source == target:
            return
        if await self._current(target) is None:
            metadata = {THREAD: target, COPIED: thread.session.id}
            _, id = await open_newest(self._store, session_ids_of(PREFIX, target))
            try:
                session = await thread.session.fork(id=id, metadata=metadata)
            except SessionExists:  # created by another process in the meantime
                pass
            else:
                await Thread(self._store, session, self.serde).adopt(thread)
                return
        to = await self._create(target)
        history = await thread.reader.history()
        for entry in reversed(list(history.keys.values())):
            read = await thread.reader.read(entry, history)
            state, metadata = thread.reader.whole(read)
            await to.put(read.ns, read.parent, state, metadata, state["channel_versions"])
            if writes := await thread.reader.writes(read.ns, read.id):
                await to.put_writes(read.ns, read.id, writes)

    async def delete(self, thread_id: str) -> None:
        """Erase the thread; copies of the thread do not change."""
        thread = await self._current(thread_id)
        self._threads.pop(thread_id, None)
        if thread is not None:
            with suppress(Erased, SessionNotFound):
                await thread.session.erase(forks="keep", by=_BY)

    async def delete_runs(self, run_ids: Sequence[str]) -> None:
        """Erase the checkpoints that belong to the runs `run_ids`."""
        runs = set(run_ids)
        for thread_id in await self._thread_ids() if runs else ():
            await self._keep(thread_id, lambda metadata: metadata.get("run_id") not in runs)

    async def prune(self, thread_ids: Sequence[str], strategy: str) -> None:
        """Delete the checkpoints that are not needed to read the newest checkpoint of a namespace.

        The strategy "delete" deletes all checkpoints.
        """
        if strategy not in {"keep_latest", "delete"}:
            raise ValueError(f"prune has the strategies keep_latest and delete, not {strategy!r}")
        for thread_id in thread_ids:
            if strategy == "delete":
                await self.delete(thread_id)
            elif (thread := await self._current(thread_id)) is not None:
                await thread.keep(await thread.reader.newest())
                self._threads.pop(thread_id, None)

    async def _keep(self, thread_id: str, is_kept: Callable[[dict[str, Any]], bool]) -> None:
        """Delete the checkpoints of a thread whose metadata the function `is_kept` rejects."""
        thread = await self._current(thread_id)
        if thread is None:
            return
        every = (await thread.reader.history()).keys
        kept = [key for key, entry in every.items() if is_kept(await thread.reader.metadata(entry))]
        if not kept and every:
            await self.delete(thread_id)
        elif len(kept) < len(every):
            await thread.keep(kept)
            self._threads.pop(thread_id, None)

    # ------------------------------------------------------------ sessions of threads

    async def _thread_ids(self) -> Sequence[str]:
        infos = await self._store.recent(None, scope="all", id_prefix=PREFIX)
        named = [(info.metadata or {}).get(THREAD) for info in infos if info.status != "erased"]
        return list(dict.fromkeys(each for each in named if isinstance(each, str)))

    async def _current(self, thread_id: str) -> Thread | None:
        """Return a thread, updated from the store; None if it has no session."""
        thread = self._threads.get(thread_id)
        if thread is not None and not await thread.cached.look():
            self._threads.pop(thread_id, None)
        return await self._open(thread_id)

    async def _open(self, thread_id: str) -> Thread | None:
        """Return the thread, or None if it has no session."""
        if (thread := self._threads.get(thread_id)) is not None:
            return thread
        session, _ = await open_newest(self._store, session_ids_of(PREFIX, thread_id))
        if session is None:
            return None
        if session.metadata.get(THREAD) != thread_id:
            raise WrongArgument(
                f"session {session.id} is no thread of LangGraph: use another thread_id",
                argument="thread_id",
            )
        if (thread := self._threads.get(thread_id)) is not None:  # another call opened it
            return thread
        thread = self._threads[thread_id] = Thread(self._store, session, self.serde)
        while len(self._threads) > _THREADS:
            del self._threads[next(iter(self._threads))]
        return thread

    async def _create(self, thread_id: str) -> Thread:
        while (thread := await self._open(thread_id)) is None:
            # No erased id is used again: another process may still hold its entries.
            ids = session_ids_of(PREFIX, thread_id)
            await create_newest(self._store, ids, {THREAD: thread_id})
        return thread


def _thread_of(config: RunnableConfig) -> str:
    return str(config.get("configurable", {})["thread_id"])


def _ns_of(config: RunnableConfig) -> str | None:
    return config.get("configurable", {}).get("checkpoint_ns")


def _config(thread_id: str, ns: str, id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": id}}
