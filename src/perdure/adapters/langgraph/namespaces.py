"""The namespaces of LangGraph's store: each is a session, whose entries are versions of items."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import perdure
from perdure.adapters.langgraph.items import (
    DELETED,
    Namespace,
    StoredItem,
    Vector,
    deleted_key,
    item_alias,
    item_entry,
    item_of,
)
from perdure.adapters.open_sessions import open_or_create, open_session
from perdure.adapters.session_ids import id_part
from perdure.errors import EntryNotFound, Erased, SessionNotFound

PREFIX: Final = "lgs"
"""The session id of a namespace begins with this prefix and a colon."""

NAMESPACE: Final = "langgraph_namespace"
"""Metadata key of the labels that form the namespace."""

_BY: Final = "perdure.adapters.langgraph"
_CACHED: Final = 1024
"""Maximum number of namespaces whose items are cached."""


class Change:
    """A change of an item: its new value, and the texts by which a search finds the item.

    If `value` is None, the item is deleted.
    """

    def __init__(
        self,
        value: Mapping[str, Any] | None,
        texts: Sequence[str] | None,
        vectors: Sequence[Vector],
    ) -> None:
        self.value = value
        self.texts = texts
        self.vectors = vectors


class StoredNamespace:
    """The items of one namespace, up to the newest entry that was read."""

    def __init__(self, namespace: Namespace, session: perdure.Session, created_at: int) -> None:
        self.namespace = namespace
        self.session = session
        self.created_at = created_at
        self.items: dict[str, StoredItem] = {}
        self.newest: dict[str, int] = {}
        self._versions: dict[str, list[int]] = {}
        self._head = -1
        self._lock = asyncio.Lock()
        self._erasing = asyncio.Lock()

    async def refresh(self, entries: int) -> None:
        """Read the entries added since the last call. `entries` is the session's entry count."""
        async with self._lock:
            if entries != self._head + 1:
                await self._read()

    async def _read(self) -> None:
        async for entry in self.session.entries(self._head):
            self._head = entry.seq
            if (item := item_of(entry)) is not None:
                self.items[item.key] = item
                self.newest[item.key] = entry.seq
                self._versions.setdefault(item.key, []).append(entry.seq)
            elif (key := deleted_key(entry)) is not None:
                self.items.pop(key, None)
                self.newest.pop(key, None)

    async def erase_deleted(self) -> None:
        """Erase all versions of the deleted items; concurrent calls share one erasure."""
        async with self._erasing:
            gone = {key: len(own) for key, own in self._versions.items() if key not in self.items}
            seqs = [seq for key in gone for seq in self._versions[key]]
            if not seqs:
                return
            entries = [f"{self.session.id}/{seq}" for seq in seqs]
            await self.session.erase_entries(entries, forks="keep", by=_BY)
            for key, erased in gone.items():  # versions may have been added meanwhile
                self._versions[key] = self._versions[key][erased:]
                if not self._versions[key]:
                    del self._versions[key]


class Namespaces:
    """The namespaces of a store; the methods run on the event loop of the store."""

    def __init__(self, store: perdure.Store) -> None:
        self.store = store
        self._known: dict[str, StoredNamespace] = {}

    async def get(self, namespace: Namespace, key: str) -> StoredItem | None:
        """Return an item; reads only its newest entry."""
        session = await open_session(self.store, session_id(namespace))
        if session is None:
            return None
        try:
            item = item_of(await session.entry(item_alias(key)))
        except (EntryNotFound, Erased, SessionNotFound):
            return None
        return item if item is not None and item.key == key else None

    async def below(self, prefix: Namespace) -> list[StoredNamespace]:
        """Return the namespaces that begin with `prefix`, with their current items."""
        found: list[StoredNamespace] = []
        start = ":".join((PREFIX, *map(id_part, prefix[:2]), ""))
        for info in await self.store.recent(None, scope="all", id_prefix=start):
            labels = (info.metadata or {}).get(NAMESPACE)
            if info.status == "erased" or not isinstance(labels, list):
                continue
            namespace: Namespace = tuple(map(str, cast("list[object]", labels)))
            if namespace[: len(prefix)] != prefix:
                continue
            known = self._known.get(info.id)
            if known is None or known.created_at != info.created_at:
                session = await open_session(self.store, info.id)
                if session is None:
                    continue
                known = StoredNamespace(namespace, session, info.created_at)
                self._known[info.id] = known
            await known.refresh(info.entries)
            found.append(known)
        while len(self._known) > _CACHED:
            del self._known[next(iter(self._known))]
        found.sort(key=lambda each: each.namespace)
        return found

    async def change(self, changes: Mapping[tuple[Namespace, str], Change]) -> None:
        """Make all `changes` in one commit, then erase deleted items.

        Durable: the change is stored when this call returns.
        """
        of_namespace: dict[Namespace, dict[str, Change]] = {}
        for (namespace, key), change in changes.items():
            of_namespace.setdefault(namespace, {})[key] = change
        writes: list[tuple[perdure.Session, list[perdure.types.Item], perdure.AppendOptions]] = []
        deleting: list[Namespace] = []
        for namespace, own in of_namespace.items():
            items, aliases = await self._items(namespace, own)
            if any(change.value is None for change in own.values()):
                deleting.append(namespace)
            if items:
                session = await open_or_create(
                    self.store,
                    session_id(namespace),
                    {NAMESPACE: list(namespace)},
                    title="/".join(namespace)[:100],
                )
                options: perdure.AppendOptions = {"aliases": aliases, "parent": None}
                writes.append((session, items, options))
        if writes:
            await self.store.commit(writes)
        if self.store.capabilities.erase:
            for namespace in deleting:
                for each in await self.below(namespace):
                    if each.namespace == namespace:
                        await each.erase_deleted()

    async def _items(
        self, namespace: Namespace, changes: Mapping[str, Change]
    ) -> tuple[list[perdure.types.Item], list[str]]:
        items: list[perdure.types.Item] = []
        aliases: list[str] = []
        for key, change in changes.items():
            before = await self.get(namespace, key)
            if change.value is not None:
                now = time.time_ns() // 1_000_000
                created_at = now if before is None else before.created_at
                value = dict(change.value)
                made = item_entry(key, value, created_at, change.texts, change.vectors)
            elif before is not None:
                made = perdure.Note(DELETED, {"key": key})
            else:
                continue
            items.append(made)
            aliases.append(item_alias(key))
        return items, aliases


def session_id(namespace: Namespace) -> str:
    """Return the session id of a namespace; the id shows the first two labels."""
    digest = hashlib.sha256(json.dumps(namespace).encode()).hexdigest()[:40]
    return ":".join((PREFIX, *map(id_part, namespace[:2]), f"h.{digest}"))
