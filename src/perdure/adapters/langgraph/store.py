"""The LangGraph store (`BaseStore`), implemented with the memory of a perdure store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    ensure_embeddings,
    get_text_at_path,
    validate_op_namespace,
)

import perdure
from perdure.adapters.langgraph.items import (
    Namespace,
    StoredItem,
    Vector,
    field_of,
    is_like,
    is_match,
    similarity,
)
from perdure.adapters.langgraph.namespaces import Change, Namespaces, StoredNamespace
from perdure.adapters.store_loop import StoreLoop
from perdure.errors import WrongArgument

_MORE = 4
_SOME = 50
"""A recall requests this many hits plus `_MORE` per item, because older versions are hits, too."""


class PerdureStore(BaseStore):
    """Items of LangGraph's store in a store of perdure: a namespace is a session.

    `store` is a `perdure.blocking.Store`, which works on any event loop and thread, or a
    `perdure.Store`. A `perdure.Store` supports only the async calls, on the event loop that opened
    it.

    A search with a query uses the recall of `Store.memory`, which needs no embeddings. If `index`
    is given, a search with a query compares embeddings instead of using the recall, as LangGraph's
    own stores do.
    """

    supports_ttl = False

    def __init__(
        self,
        store: perdure.Store | perdure.blocking.Store,
        *,
        index: IndexConfig | None = None,
    ) -> None:
        self._loop = StoreLoop(store)
        self._namespaces = Namespaces(self._loop.store)
        self.index_config = index
        self.embeddings = None if index is None else ensure_embeddings(index.get("embed"))

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: reads first, then all changes in one commit."""
        batch = _Batch(ops)
        texts = batch.texts(self.index_config)
        vectors: list[list[float]] = []
        if self.embeddings is not None and texts:
            vectors = self.embeddings.embed_documents(texts)
        return self._loop.wait(self._run(batch, dict(zip(texts, vectors, strict=False))), "store")

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: reads first, then all changes in one commit."""
        batch = _Batch(ops)
        texts = batch.texts(self.index_config)
        vectors: list[list[float]] = []
        if self.embeddings is not None and texts:
            vectors = await self.embeddings.aembed_documents(texts)
        return await self._loop.call(self._run(batch, dict(zip(texts, vectors, strict=False))))

    # ------------------------------------------------------------ on the loop of the store

    async def _run(self, batch: _Batch, vectors: Mapping[str, Vector]) -> list[Result]:
        results: list[Result] = [await self._read(op, vectors) for op in batch.ops]
        if batch.puts:
            await self._namespaces.change(
                {place: self._change(op, vectors) for place, op in batch.puts.items()}
            )
        return results

    async def _read(self, op: Op, vectors: Mapping[str, Vector]) -> Result:
        match op:
            case GetOp():
                item = await self._namespaces.get(op.namespace, op.key)
                return None if item is None else item.item(op.namespace)
            case SearchOp():
                return await self._search(op, vectors)
            case ListNamespacesOp():
                return await self._list(op)
            case _:
                return None

    def _change(self, op: PutOp, vectors: Mapping[str, Vector]) -> Change:
        if op.value is None:
            return Change(None, None, ())
        texts = _texts_of(op, self.index_config)
        found = [vectors[text] for text in texts if text in vectors]
        if op.index is False:
            return Change(op.value, (), ())
        return Change(op.value, None if op.index is None else texts, found)

    async def _search(self, op: SearchOp, vectors: Mapping[str, Vector]) -> list[SearchItem]:
        namespaces = await self._namespaces.below(tuple(op.namespace_prefix))
        found = [
            (namespace, item)
            for namespace in namespaces
            for item in namespace.items.values()
            if not op.filter or _fits(item, namespace, op.filter)
        ]
        if not op.query:
            ranked = [(each, None) for each in found]
        elif self.embeddings is not None:
            ranked = _by_vectors(found, vectors[op.query])
        else:
            ranked = await self._by_recall(op, found)
        chosen = ranked[op.offset : op.offset + op.limit]
        return [item.found(within.namespace, score) for (within, item), score in chosen]

    async def _by_recall(
        self, op: SearchOp, found: Sequence[tuple[StoredNamespace, StoredItem]]
    ) -> list[tuple[tuple[StoredNamespace, StoredItem], float | None]]:
        """Return the items of `found` that a recall of the query finds, best match first.

        Entries that the recall returned only as neighbours of a match are left out.
        """
        assert op.query is not None
        wanted = {
            f"{within.session.id}/{within.newest[item.key]}": (within, item)
            for within, item in found
        }
        sessions = list({within.session.id for within, _ in found})
        try:
            hits = await self._loop.store.memory.recall(
                op.query,
                scope="namespace",
                sessions=sessions,
                limit=(op.offset + op.limit) * _MORE + _SOME,
                kinds=("text",),
            )
        except WrongArgument as error:
            if error.argument == "question":  # without a word to look for
                return []
            raise
        return [
            (wanted[hit.entry_id], hit.score)
            for hit in hits
            if hit.entry_id in wanted and (hit.why.terms or hit.why.vector is not None)
        ]

    async def _list(self, op: ListNamespacesOp) -> list[Namespace]:
        conditions = op.match_conditions or ()
        prefix: list[str] = []
        for condition in conditions:
            if condition.match_type == "prefix" and not prefix:
                while len(prefix) < len(condition.path) and condition.path[len(prefix)] != "*":
                    prefix.append(condition.path[len(prefix)])
        found = {
            each.namespace[: op.max_depth]
            for each in await self._namespaces.below(tuple(prefix))
            if each.items and all(is_match(condition, each.namespace) for condition in conditions)
        }
        return sorted(found)[op.offset : op.offset + op.limit]


class _Batch:
    """The operations of one batch in their order, and the last change to each item."""

    def __init__(self, ops: Iterable[Op]) -> None:
        self.ops = list(ops)
        self.puts: dict[tuple[Namespace, str], PutOp] = {}
        for op in self.ops:
            validate_op_namespace(op)
            if isinstance(op, PutOp):
                self.puts[op.namespace, op.key] = op

    def texts(self, config: IndexConfig | None) -> list[str]:
        """Return the distinct texts that need embeddings."""
        if config is None:
            return []
        found: dict[str, None] = {}
        for op in self.ops:
            if isinstance(op, SearchOp) and op.query:
                found[op.query] = None
        for op in self.puts.values():
            found.update(dict.fromkeys(_texts_of(op, config)))
        return list(found)


def _texts_of(op: PutOp, config: IndexConfig | None) -> list[str]:
    """Return the texts by which a search finds an item."""
    if op.value is None or op.index is False:
        return []
    paths = op.index if op.index is not None else (config or {}).get("fields") or ["$"]
    return [text for path in paths for text in get_text_at_path(op.value, path)]


def _fits(item: StoredItem, namespace: StoredNamespace, wanted: Mapping[str, Any]) -> bool:
    value = item.item(namespace.namespace).value
    return all(is_like(field_of(value, name), each) for name, each in wanted.items())


def _by_vectors(
    found: Sequence[tuple[StoredNamespace, StoredItem]], query: Vector
) -> list[tuple[tuple[StoredNamespace, StoredItem], float | None]]:
    """Sort items by the similarity of their vectors to `query`; items without vectors are last."""
    scored: list[tuple[tuple[StoredNamespace, StoredItem], float | None]] = []
    scored += [
        (each, max(similarity(query, vector) for vector in each[1].vectors))
        for each in found
        if each[1].vectors
    ]
    scored.sort(key=lambda each: -(each[1] or 0.0))
    return [*scored, *((each, None) for each in found if not each[1].vectors)]
