"""Stores a LangGraph thread as a session: each checkpoint is an entry below its parent's entry.

The alias of each checkpoint's entry contains the checkpoint's namespace and id. For each namespace,
one note records its newest checkpoint. Each note of pending writes refers to the previous note of
pending writes about the same checkpoint. An append fails if the session has entries that the cache
does not know, because the appended values are computed from the cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast

from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata
from langgraph.checkpoint.serde.base import SerializerProtocol

import perdure
from perdure.adapters.langgraph.cached_thread import CachedThread
from perdure.adapters.langgraph.checkpoints import (
    CheckpointReader,
    PendingWrite,
    StoredCheckpoint,
)
from perdure.adapters.langgraph.entries import (
    CHECKPOINT,
    DELETED,
    WRITES,
    Key,
    WritesBody,
    checkpoint_alias,
    checkpoint_in,
    newest_alias,
    newest_note,
    note_in,
    writes_alias,
    writes_note,
)
from perdure.adapters.langgraph.messages import messages_of, readable
from perdure.adapters.langgraph.values import (
    ChannelValue,
    Record,
    encoded,
    stored,
    window_of,
)
from perdure.errors import HeadConflict, InvalidEntry, WrongArgument

T = TypeVar("T")

Whole = Literal["values", "with messages"]
"""How a checkpoint is stored again: only its values, or its values and its readable messages."""


class Thread:
    """The session of one thread; its methods run on the event loop of its store."""

    def __init__(
        self, store: perdure.Store, session: perdure.Session, serde: SerializerProtocol
    ) -> None:
        self.session = session
        self._serde = serde
        self._lock = asyncio.Lock()
        self.reader = CheckpointReader(store, session, serde)
        self.cached = CachedThread(store, self.reader, self._lock)

    # ------------------------------------------------------------ writing

    async def put(
        self,
        ns: str,
        parent: str | None,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        changed: Collection[str],
    ) -> None:
        """Store `checkpoint` in namespace `ns`; `parent` is the id of its parent checkpoint.

        The record of a channel that is not in `changed` can refer to the value in the parent
        checkpoint.

        Durable: the change is stored when this call returns.
        """
        async with self._lock:
            await self._retried(lambda: self._put(ns, parent, checkpoint, metadata, changed))

    async def put_writes(self, ns: str, id: str, writes: Sequence[PendingWrite]) -> None:
        """Store `writes` of a checkpoint; the checkpoint itself can be stored later.

        Durable: the change is stored when this call returns.
        """
        listed: list[list[object]] = [
            [each.task, each.path, each.index, each.channel, each.type, encoded(each.data)]
            for each in writes
        ]

        async def put() -> None:
            before = await self.cached.tail(ns, id)
            await self._append([writes_note(ns, id, before, listed)], [writes_alias(ns, id)])
            self.cached.tails[ns, id] = f"{self.session.id}/{self.cached.head}"
            self.cached.written.pop((ns, id), None)

        async with self._lock:
            await self._retried(put)

    async def _retried(self, work: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await work()
            except HeadConflict:  # another process, or another handle, wrote
                await self.cached.refresh()

    async def _append(
        self,
        items: Sequence[perdure.types.Item],
        aliases: Sequence[str | None],
        parent: perdure.Entry | None = None,
    ) -> list[perdure.Entry]:
        entries = await self.session.append_many(
            items, parent=parent, aliases=aliases, expected_head=self.cached.head
        )
        self.cached.head = entries[-1].seq
        return entries

    async def _put(
        self,
        ns: str,
        parent: str | None,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        changed: Collection[str],
        *,
        whole: Whole | None = None,
    ) -> None:
        id = checkpoint["id"]
        above = None if parent is None else await self.cached.checkpoint(ns, parent)
        records, values = self._values(checkpoint, None if whole else above, changed)
        state = cast("dict[str, Any]", {**checkpoint, "channel_values": {}})
        kind, data = self._serde.dumps_typed({"checkpoint": state, "metadata": metadata})
        messages = messages_of(checkpoint["channel_values"]) if not ns else []
        has_shown = above is not None and whole != "with messages"
        shown = min(above.shown, len(messages)) if above is not None and has_shown else 0
        body: Record = {
            "ns": ns,
            "id": id,
            "parent": parent,
            "state": {"type": kind, **encoded(data)},
            "values": records,
            "window": window_of(values),
            "shown": len(messages),
            "said": 0,
        }
        if whole:
            body["is_again"] = True
        at = None if above is None else above.entry
        entry = await self._append_checkpoint(body, at, readable(messages[shown:]))
        versions = dict(checkpoint["channel_versions"])
        known = StoredCheckpoint(
            ns, id, parent, entry, (kind, data), values, len(messages), versions
        )
        self.reader.remember(known)
        self.cached.place(known)

    async def _append_checkpoint(
        self, body: Record, parent: perdure.Entry | None, messages: Sequence[perdure.Message]
    ) -> perdure.Entry:
        """Append a checkpoint, its readable messages, and a note that it is the newest."""
        ns, id = cast("str", body["ns"]), cast("str", body["id"])
        newest = await self.cached.newest_id(ns)
        after: list[perdure.types.Item] = [perdure.Custom(CHECKPOINT, body)]
        aliases = [checkpoint_alias(ns, id)]
        if newest is None or id > newest:
            after.append(newest_note(ns, id))
            aliases.append(newest_alias(ns))
        try:
            none = [None] * len(messages)
            after[0] = perdure.Custom(CHECKPOINT, {**body, "said": len(messages)})
            entries = await self._append([*messages, *after], [*none, *aliases], parent)
            made = entries[len(messages)]
        except (InvalidEntry, WrongArgument, ValueError, OverflowError):
            if not messages:
                raise
            # A message that no log can hold, such as half of a character pair, is not shown.
            after[0] = perdure.Custom(CHECKPOINT, body)
            made = (await self._append(after, aliases, parent))[0]
        self.cached.newest[ns] = id if newest is None else max(newest, id)
        return made

    def _values(
        self, checkpoint: Checkpoint, above: StoredCheckpoint | None, changed: Collection[str]
    ) -> tuple[dict[str, Record], dict[str, ChannelValue]]:
        records: dict[str, Record] = {}
        values: dict[str, ChannelValue] = {}
        versions = checkpoint["channel_versions"]
        before: Mapping[str, Any] = {} if above is None else self.reader.versions_of(above)
        for channel, value in checkpoint["channel_values"].items():
            old = None if above is None else above.values.get(channel)
            version = versions.get(channel)
            is_same = channel not in changed and version is not None
            if old is not None and is_same and before.get(channel) == version:
                serialized = (old.type, old.data)
            else:
                serialized = self._serde.dumps_typed(value)
            records[channel], values[channel] = stored(serialized, old)
        return records, values

    # ------------------------------------------------------------ copying and deleting

    async def adopt(self, origin: Thread) -> None:
        """Append the notes that this fork of `origin` needs.

        The notes name the newest checkpoints, hide deleted checkpoints, and store pending writes.
        """
        shown = (await origin.reader.history()).keys
        keys = list((await self.reader.history()).keys)
        gone = [key for key in keys if key not in shown]
        kept = [key for key in keys if key in shown]
        async with self._lock:
            await self._retried(lambda: self._forget(gone, keys, kept))
        for ns, id in kept:
            if writes := await origin.reader.writes(ns, id):
                await self.put_writes(ns, id, writes)

    async def keep(self, kept: Collection[Key]) -> None:
        """Delete all checkpoints that are not in `kept`, with their writes, to free storage.

        First the kept checkpoints are stored again, without references to parts of deleted
        checkpoints. The entries of deleted checkpoints are erased only after the kept checkpoints
        were stored again. If the process is killed, either nothing is deleted or repeating the call
        completes the deletion.
        Durable: the change is stored when this call returns.
        """
        async with self._lock:
            await self.cached.refresh()
            known = (await self.reader.history()).keys
            await self._retried(lambda: self._keep(kept, known))
            self.reader.forget()
            await self.cached.refresh()

    async def _keep(self, kept: Collection[Key], known: Collection[Key]) -> None:
        """Delete the checkpoints that are in `known` but not in `kept`.

        Checkpoints that another process stored since `known` was read are kept.
        Raises: HeadConflict if another process wrote during this call; in this case nothing is
        erased.
        """
        old = list((await self.reader.history()).keys)
        entries = await self.session.tree_entries()
        chosen = {key for key in old if key in kept or key not in known}
        for ns, id in sorted(chosen, key=lambda key: key[1]):
            await self._put_again(ns, id, chosen)
        gone = [key for key in old if key not in chosen]
        await self._forget(gone, old, sorted(chosen))
        await self._erase(entries, gone)

    async def _put_again(self, ns: str, id: str, chosen: Collection[Key]) -> None:
        read = await self.reader.checkpoint(ns, id)
        if read is None:
            return
        again, metadata = self.reader.whole(read)
        is_first = read.parent is None or (ns, read.parent) not in chosen
        whole: Whole = "with messages" if is_first else "values"
        await self._put(ns, read.parent, again, metadata, (), whole=whole)

    async def _forget(self, gone: Sequence[Key], old: Sequence[Key], kept: Sequence[Key]) -> None:
        """Append notes that name the newest of `kept`, and notes that hide `gone` in forks.

        `old` contains the checkpoints that existed before the deletion.
        """
        items: list[perdure.types.Item] = []
        aliases: list[str | None] = []
        for ns in sorted({ns for ns, _ in old}):
            newest = max((id for each, id in kept if each == ns), default=None)
            items.append(newest_note(ns, newest))
            aliases.append(newest_alias(ns))
        for ns, id in gone:
            items.append(perdure.Note(DELETED, {"ns": ns, "checkpoint": id}))
            aliases.append(checkpoint_alias(ns, id))
        if items:
            await self._append(items, aliases)
        self.cached.forget()

    async def _erase(self, entries: Sequence[perdure.Entry], gone: Sequence[Key]) -> None:
        """Erase the checkpoints in `entries`, their messages, and the pending writes of `gone`.

        Entries that other programs added remain, and so do the entries that belong to the origin of
        a fork.
        """
        own = [e for e in entries if e.stream == self.session.id and not e.is_erased]
        ours: set[int] = set()
        for entry in own:
            if (body := checkpoint_in(entry)) is not None:
                ours.update(range(entry.seq - body.said, entry.seq + 1))
        found = [entry for entry in own if entry.seq in ours]
        lost = set(gone)
        async for note in self.session.notes(WRITES):
            data = note_in(note, WritesBody)
            if data is not None and (data.ns, data.checkpoint) in lost:
                found.append(note)
        if found:
            await self.session.erase_entries(found, forks="keep", by="perdure.adapters.langgraph")
