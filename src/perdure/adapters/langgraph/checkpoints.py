"""Reads checkpoints from the session of a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, writes_sort_key
from langgraph.checkpoint.serde.base import SerializerProtocol

import perdure
from perdure.adapters.langgraph.entries import (
    DELETED,
    CheckpointBody,
    DeletedBody,
    Key,
    NewestBody,
    WritesBody,
    checkpoint_alias,
    checkpoint_in,
    newest_alias,
    note_in,
    place_in,
    writes_alias,
)
from perdure.adapters.langgraph.values import (
    ChannelValue,
    combined,
    content_of,
    continued,
    decoded,
    whole_records,
)
from perdure.errors import EntryNotFound

COPIED: Final = "langgraph_copied_from"
"""Metadata key of a copied thread: the id of the session that it shares entries with."""

T = TypeVar("T")

_KNOWN: Final = 64
"""Maximum number of checkpoints of a thread whose values are cached."""


class StoredCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint as read from a session; `state` is serialized and includes the metadata.

    `versions` are the versions of the checkpoint's channels. `versions` is None if the checkpoint
    was read from the store; then only `state` contains the versions.
    """

    ns: str
    id: str
    parent: str | None
    entry: perdure.Entry
    state: tuple[str, bytes]
    values: Mapping[str, ChannelValue]
    shown: int
    versions: Mapping[str, Any] | None = None


class History(msgspec.Struct, frozen=True):
    """The checkpoints and the tree entries of a session.

    Shape: `keys` is ordered by checkpoint id, newest first. `tree` maps entry ids to tree entries.
    """

    keys: Mapping[Key, perdure.Entry]
    tree: Mapping[str, perdure.Entry]

    def above(self, entry: perdure.Entry) -> perdure.Entry | None:
        """Return the nearest checkpoint above `entry` on the path to the root, of any namespace."""
        while entry.parent_id is not None:
            entry = self.tree[entry.parent_id]
            if place_in(entry) is not None:
                return entry
        return None


class PendingWrite(msgspec.Struct, frozen=True):
    """One write of a task to a channel.

    Shape: several writes of a task can have the same `index`. Of the writes with a negative
    `index`, the newest is used; of the writes with any other `index`, the oldest is used.
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

    async def history(self, ns: str | None = None) -> History:
        """Return the checkpoints of `ns`; by default those of all namespaces."""
        entries = await self.session.tree_entries()
        live: dict[Key, perdure.Entry] = {}
        has_deleted = False
        for entry in entries:
            if (place := place_in(entry)) is not None and ns in (None, place.ns):
                live[place.key] = entry
                has_deleted = has_deleted or place.is_again
        if has_deleted or any(entry.stream != self.session.id for entry in entries):
            async for note in self.session.notes(DELETED):
                if (deleted := note_in(note, DeletedBody)) is not None:
                    key = (deleted.ns, deleted.checkpoint)
                    if key in live and not self._is_newer(live[key], note):
                        del live[key]
        keys = {key: live[key] for key in sorted(live, key=lambda key: key[1], reverse=True)}
        return History(keys, {entry.id: entry for entry in entries})

    def _is_newer(self, entry: perdure.Entry, note: perdure.Entry) -> bool:
        """Return whether `entry` was stored after `note` recorded that its checkpoint was deleted.

        Deletions are recorded because some deleted entries remain in the log: a fork cannot erase
        entries of its origin, and an origin keeps the entries that it shares with a fork.
        """
        return entry.stream == self.session.id and entry.seq > note.seq

    async def newest(self) -> set[Key]:
        """Return the newest checkpoint of each namespace, and the checkpoints needed to read it.

        A delta channel has no value in most checkpoints. For a delta channel, LangGraph needs the
        nearest earlier checkpoint that has a value for the channel, and the writes after that
        checkpoint.
        """
        keys = (await self.history()).keys
        found: set[Key] = set()
        for ns in {ns for ns, _ in keys}:
            id: str | None = max(id for each, id in keys if each == ns)
            wanted: set[str] | None = None
            while id is not None and (read := await self.checkpoint(ns, id)) is not None:
                found.add((ns, id))
                if wanted is None:
                    metadata = await self.metadata(read.entry)
                    wanted = set(metadata.get("counters_since_delta_snapshot", ()))
                wanted -= read.values.keys()
                id = read.parent if wanted else None
        return found

    async def read(self, entry: perdure.Entry, history: History | None = None) -> StoredCheckpoint:
        """Return the checkpoint in `entry`. If `history` is given, it must contain the checkpoint.

        Raises: LookupError if data of the checkpoint was erased.
        """
        if (known := self._known.get(entry.id)) is not None:
            return known
        body = checkpoint_in(entry)
        if body is None:
            raise LookupError(entry.id)
        contents: dict[str, bytes] = {}
        await self._fetch(contents, list(body.values.values()))
        values: Mapping[str, ChannelValue] | None = None
        above = None if history is None else history.above(entry)
        if above is not None and (known := self._known.get(above.id)) is not None:
            values = continued(body.values, known.values, contents)
        if values is None:
            values = await self._values(entry, body, contents, history)
        state = await self._state(body)
        read = StoredCheckpoint(body.ns, body.id, body.parent, entry, state, values, body.shown)
        self.remember(read)
        return read

    async def _values(
        self,
        entry: perdure.Entry,
        body: CheckpointBody,
        contents: dict[str, bytes],
        history: History | None,
    ) -> dict[str, ChannelValue]:
        values: dict[str, ChannelValue] = {}
        path = await self._path(entry, body, history)
        for channel in body.values:
            back, records = whole_records(path, channel)
            await self._fetch(contents, records[-1:])
            values[channel] = combined(back, records, contents)
        return values

    async def metadata(self, entry: perdure.Entry) -> dict[str, Any]:
        """Return the metadata of the checkpoint in `entry`, without reading the channel values."""
        body = checkpoint_in(entry)
        if body is None:
            raise LookupError(entry.id)
        metadata: dict[str, Any] = self._serde.loads_typed(await self._state(body))["metadata"]
        return metadata

    async def _state(self, body: CheckpointBody) -> tuple[str, bytes]:
        contents: dict[str, bytes] = {}
        await self._fetch(contents, [body.state])
        return body.state["type"], decoded(body.state, contents)

    def whole(self, read: StoredCheckpoint) -> tuple[Checkpoint, CheckpointMetadata]:
        """Return copies of a checkpoint with its values, and of its metadata."""
        found = self._serde.loads_typed(read.state)
        values = {
            channel: self._serde.loads_typed((value.type, value.data))
            for channel, value in read.values.items()
        }
        checkpoint = cast("Checkpoint", {**found["checkpoint"], "channel_values": values})
        return checkpoint, found["metadata"]

    def versions_of(self, read: StoredCheckpoint) -> Mapping[str, Any]:
        """Return the versions of the channels in a checkpoint."""
        if read.versions is not None:
            return read.versions
        versions: Mapping[str, Any] = self._serde.loads_typed(read.state)["checkpoint"][
            "channel_versions"
        ]
        return versions

    async def writes(self, ns: str, id: str) -> list[PendingWrite]:
        """Return the pending writes of a checkpoint, in the order of `writes_sort_key`."""
        alias: str | None = writes_alias(ns, id)
        found: list[WritesBody] = []
        while alias is not None and (note := await self._note(alias, WritesBody)) is not None:
            found.append(note)
            alias = note.before
        kept: dict[tuple[str, int], PendingWrite] = {}
        for note in reversed(found):
            contents: dict[str, bytes] = {}
            await self._fetch(contents, [each[5] for each in note.writes])
            for task, path, index, channel, kind, record in note.writes:
                if index < 0 or (task, index) not in kept:
                    made = PendingWrite(task, path, index, channel, kind, decoded(record, contents))
                    kept[task, index] = made
        return sorted(kept.values(), key=lambda w: writes_sort_key(w.path, w.task, w.index))

    async def checkpoint(self, ns: str, id: str) -> StoredCheckpoint | None:
        """Return the checkpoint with this namespace and id, or None."""
        entry = await self.entry(checkpoint_alias(ns, id))
        if entry is None and COPIED in self.session.metadata:
            # The origin may have given the alias to a newer entry, which a copy does not share.
            entry = (await self.history(ns)).keys.get((ns, id))
        return None if entry is None or place_in(entry) is None else await self.read(entry)

    async def _path(
        self, entry: perdure.Entry, body: CheckpointBody, history: History | None
    ) -> list[dict[str, dict[str, Any]]]:
        """Return the `values` of the checkpoints on the path to `entry`, oldest first.

        The result contains the checkpoint in `entry` and the checkpoints before it, at least
        `body.window` in total.
        """
        path = [body.values]
        if history is not None:
            at = history.above(entry)
            while len(path) < body.window and at is not None:
                if (found := checkpoint_in(at)) is not None:
                    path.append(found.values)
                at = history.above(at)
            return path[::-1]
        last: int | None = body.window
        while body.window > 1:
            entries = await self.session.path(entry, last=last, kind="custom")
            path = [found.values for each in entries if (found := checkpoint_in(each)) is not None]
            if len(path) >= body.window or last is None or len(entries) < last:
                break
            last = None  # other programs' entries lie between
        return path

    async def _fetch(
        self, contents: dict[str, bytes], records: Sequence[Mapping[str, Any]]
    ) -> None:
        for record in records:
            if (handle := content_of(record)) is not None and handle not in contents:
                contents[handle] = await self._store.content(handle)

    async def entry(self, alias: str) -> perdure.Entry | None:
        """Return the newest entry with `alias`; None if it is erased or does not exist."""
        try:
            entry = await self.session.entry(alias)
        except EntryNotFound:
            return None
        return None if entry.is_erased else entry

    async def _note(self, alias: str, shape: type[T]) -> T | None:
        entry = await self.entry(alias)
        return None if entry is None else note_in(entry, shape)

    async def newest_id(self, ns: str) -> str | None:
        """Return the id of the newest checkpoint of `ns`."""
        note = await self._note(newest_alias(ns), NewestBody)
        return None if note is None else note.checkpoint

    def remember(self, read: StoredCheckpoint) -> None:
        """Cache a checkpoint."""
        self._known[read.entry.id] = read
        while len(self._known) > _KNOWN:
            del self._known[next(iter(self._known))]

    def forget(self) -> None:
        """Empty the cache."""
        self._known.clear()
