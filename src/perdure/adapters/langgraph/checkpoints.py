"""Checkpoints as they are read from the session of a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, cast

import msgspec
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, writes_sort_key
from langgraph.checkpoint.serde.base import SerializerProtocol

import perdure
from perdure.adapters.langgraph.values import (
    ChannelValue,
    combined,
    content_of,
    decoded,
    whole_records,
)
from perdure.errors import EntryNotFound

CHECKPOINT: Final = "langgraph.checkpoint"
NEWEST: Final = "langgraph.newest"
WRITES: Final = "langgraph.writes"
DELETED: Final = "langgraph.deleted"

COPIED: Final = "langgraph_copied_from"
"""Metadata of a copied thread: the session it shares entries with."""

_KNOWN: Final = 64
"""Checkpoints of a thread whose values are cached."""

Key = tuple[str, str]
"""Namespace and id of a checkpoint."""


class StoredCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint as read from a session, values and state still serialized."""

    ns: str
    id: str
    parent: str | None
    entry: perdure.Entry
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    values: Mapping[str, ChannelValue]
    shown: int


class PendingWrite(msgspec.Struct, frozen=True):
    """One write of a task to a channel.

    Shape: of writes with the same `index`, the newest counts if it is below 0, else the first.
    """

    task: str
    path: str
    index: int
    channel: str
    type: str
    data: bytes


class CheckpointReader:
    """Reads the checkpoints of one session, and caches their serialized values."""

    def __init__(
        self, store: perdure.Store, session: perdure.Session, serde: SerializerProtocol
    ) -> None:
        self.session = session
        self._store = store
        self._serde = serde
        self._known: dict[str, StoredCheckpoint] = {}

    async def all(self, ns: str | None) -> list[perdure.Entry]:
        """Return the entries of the checkpoints of `ns` (None: of all), newest id first."""
        entries = await self.session.tree_entries()
        live: dict[Key, perdure.Entry] = {}
        for entry in entries:
            if (body := body_of(entry)) is not None and ns in (None, body["ns"]):
                live[body["ns"], body["id"]] = entry
        if any(entry.stream != self.session.id for entry in entries):
            async for note in self.session.notes(DELETED):
                data = note_data(note)
                key = (data["ns"], data["checkpoint"])
                if key in live and live[key].stream != self.session.id:
                    del live[key]
        return [live[key] for key in sorted(live, key=lambda key: key[1], reverse=True)]

    async def newest(self) -> set[Key]:
        """Return the newest checkpoint of each namespace, and those it cannot be read without.

        A delta channel has no value in most checkpoints: LangGraph needs the nearest one above
        that has it, and the writes in between.
        """
        keys = [key_of(entry) for entry in await self.all(None)]
        found: set[Key] = set()
        for ns in {ns for ns, _ in keys}:
            id: str | None = max(id for each, id in keys if each == ns)
            wanted: set[str] | None = None
            while id is not None and (read := await self.checkpoint(ns, id)) is not None:
                found.add((ns, id))
                if wanted is None:
                    wanted = set(read.metadata.get("counters_since_delta_snapshot", ()))
                wanted -= read.values.keys()
                id = read.parent if wanted else None
        return found

    async def read(self, entry: perdure.Entry) -> StoredCheckpoint:
        """Return the checkpoint of `entry`.

        Raises: LookupError if data that it needs was erased.
        """
        if (known := self._known.get(entry.id)) is not None:
            return known
        body = body_of(entry)
        if body is None:
            raise LookupError(entry.id)
        state, state_type = body["state"], body["state"]["type"]
        contents: dict[str, bytes] = {}
        await self._fetch(contents, [state])
        found = self._serde.loads_typed((state_type, decoded(state, contents)))
        values: dict[str, ChannelValue] = {}
        if body["values"]:
            path = await self._path(entry, body["window"])
            for channel in body["values"]:
                back, records = whole_records(path, channel)
                await self._fetch(contents, records[-1:])
                values[channel] = combined(back, records, contents)
        checkpoint, metadata = found["checkpoint"], found["metadata"]
        read = StoredCheckpoint(
            body["ns"],
            body["id"],
            body["parent"],
            entry,
            checkpoint,
            metadata,
            values,
            body["shown"],
        )
        self.remember(read)
        return read

    def state_of(self, read: StoredCheckpoint) -> Checkpoint:
        """Return the checkpoint with its values, as new objects."""
        values = {
            channel: self._serde.loads_typed((value.type, value.data))
            for channel, value in read.values.items()
        }
        own = deepcopy(read.checkpoint)  # LangGraph changes the versions of what it is given
        return cast("Checkpoint", {**own, "channel_values": values})

    async def writes(self, ns: str, id: str) -> list[PendingWrite]:
        """Return the pending writes of a checkpoint, in the order of `writes_sort_key`."""
        alias: str | None = writes_alias(ns, id)
        found: list[Mapping[str, Any]] = []
        while alias is not None and (note := await self._note(alias)) is not None:
            found.append(note)
            alias = note["before"]
        kept: dict[tuple[str, int], PendingWrite] = {}
        for data in reversed(found):
            contents: dict[str, bytes] = {}
            await self._fetch(contents, [each[5] for each in data["writes"]])
            for task, path, index, channel, kind, record in data["writes"]:
                if index < 0 or (task, index) not in kept:
                    made = PendingWrite(task, path, index, channel, kind, decoded(record, contents))
                    kept[task, index] = made
        return sorted(kept.values(), key=lambda w: writes_sort_key(w.path, w.task, w.index))

    async def checkpoint(self, ns: str, id: str) -> StoredCheckpoint | None:
        """Return the checkpoint, or None."""
        entry = await self.entry(checkpoint_alias(ns, id))
        if entry is None and COPIED in self.session.metadata:
            # The origin may have given the alias to a newer entry, which a copy does not share.
            found = (each for each in await self.all(ns) if key_of(each) == (ns, id))
            entry = next(found, None)
        return None if entry is None or body_of(entry) is None else await self.read(entry)

    async def _path(self, entry: perdure.Entry, window: int) -> list[dict[str, Any]]:
        """Return the records of `window` checkpoints down to `entry`."""
        last: int | None = window
        while True:
            path = await self.session.path(entry, last=last, kind="custom")
            bodies = [body["values"] for each in path if (body := body_of(each)) is not None]
            if len(bodies) >= window or last is None or len(path) < last:
                return bodies
            last = None  # other programs' entries lie between

    async def _fetch(
        self, contents: dict[str, bytes], records: Sequence[Mapping[str, Any]]
    ) -> None:
        for record in records:
            if (handle := content_of(record)) is not None and handle not in contents:
                contents[handle] = await self._store.content(handle)

    async def entry(self, alias: str) -> perdure.Entry | None:
        """Return the newest entry with `alias`; None if there is none, or it was erased."""
        try:
            entry = await self.session.entry(alias)
        except EntryNotFound:
            return None
        return None if entry.is_erased else entry

    async def _note(self, alias: str) -> Mapping[str, Any] | None:
        entry = await self.entry(alias)
        return None if entry is None else note_data(entry)

    async def newest_id(self, ns: str) -> str | None:
        """Return the id of the newest checkpoint of `ns`."""
        note = await self._note(newest_alias(ns))
        return None if note is None else note["checkpoint"]

    def remember(self, read: StoredCheckpoint) -> None:
        """Cache a checkpoint."""
        self._known[read.entry.id] = read
        while len(self._known) > _KNOWN:
            del self._known[next(iter(self._known))]

    def forget(self) -> None:
        """Empty the cache."""
        self._known.clear()


def body_of(entry: perdure.Entry) -> dict[str, Any] | None:
    """Return the data of a checkpoint's entry; None for another entry, and an erased one."""
    if entry.kind != "custom" or entry.is_erased:
        return None
    body = perdure.body_of(entry)
    if not isinstance(body, perdure.Custom) or body.custom_type != CHECKPOINT:
        return None
    return cast("dict[str, Any]", body.data)


def key_of(entry: perdure.Entry) -> Key:
    """Return namespace and id of the checkpoint of `entry`."""
    body = body_of(entry)
    assert body is not None
    return body["ns"], body["id"]


def note_data(entry: perdure.Entry) -> dict[str, Any]:
    """Return the data of a note."""
    return cast("perdure.Note", perdure.body_of(entry)).data


def newest_note(ns: str, id: str | None) -> perdure.Note:
    """Return the note that `id` is the newest checkpoint of `ns`."""
    return perdure.Note(NEWEST, {"ns": ns, "checkpoint": id})


def checkpoint_alias(ns: str, id: str) -> str:
    """Return the alias of a checkpoint."""
    return f"langgraph/{ns}/{id}"


def newest_alias(ns: str) -> str:
    """Return the alias of the note of the newest checkpoint."""
    return f"langgraph-newest/{ns}/"


def writes_alias(ns: str, id: str) -> str:
    """Return the alias of the notes of pending writes."""
    return f"langgraph-writes/{ns}/{id}"


def id_of(entry: perdure.Entry) -> str:
    """Return the id of the checkpoint of `entry`."""
    return key_of(entry)[1]
