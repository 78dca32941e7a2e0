"""Copies LangGraph checkpoints from another saver, and items from another store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore, Op, PutOp

from perdure.adapters.langgraph.saver import PerdureSaver
from perdure.adapters.langgraph.store import PerdureStore

_PAGE: Final = 100
"""Number of namespaces or items read at a time; the items are written in one commit."""

T = TypeVar("T")


def copy_checkpoints(
    source: BaseCheckpointSaver[Any], target: PerdureSaver, thread_id: str | None = None
) -> int:
    """Copy checkpoints and writes of `source`; return the number of copied checkpoints.

    If `thread_id` is None, all threads are copied. Repeating a call copies only the missing
    checkpoints. `source` is not changed. The copied pending writes have no task path, but keep
    their order. Durable: the change is stored when this call returns.
    """
    wanted: Any = None if thread_id is None else {"configurable": {"thread_id": thread_id}}
    copied = 0
    for found in sorted(source.list(wanted), key=lambda found: found.checkpoint["id"]):
        if target.get_tuple(found.config) is not None:
            continue
        place = found.config.get("configurable", {})
        above = (found.parent_config or {}).get("configurable", {})
        parent = above.get("checkpoint_id")
        config: Any = {"configurable": {**place, "checkpoint_id": parent}}
        versions = found.checkpoint["channel_versions"]
        of_task: dict[str, list[tuple[str, Any]]] = {}
        for task, channel, value in found.pending_writes or ():
            of_task.setdefault(task, []).append((channel, value))
        for task, writes in of_task.items():
            target.put_writes(found.config, writes, task)
        target.put(config, found.checkpoint, found.metadata, versions)
        copied += 1
    return copied


def copy_items(source: BaseStore, target: PerdureStore, prefix: tuple[str, ...] = ()) -> int:
    """Copy items of `source` in namespaces that begin with `prefix`; return the number copied.

    Repeating a call copies only items that are new or have another value. `source` is not changed;
    no other program must write to it during the copy. The copies get the time of the copy. If
    `target` has an `index`, the copies get new embeddings. Durable: the change is stored when this
    call returns.
    """
    namespaces = _pages(
        lambda offset: source.list_namespaces(prefix=prefix, limit=_PAGE, offset=offset)
    )
    copied = 0
    for namespace in [each for page in namespaces for each in page]:
        pages = _pages(lambda offset, ns=namespace: source.search(ns, limit=_PAGE, offset=offset))
        for page in pages:
            found = [item for item in page if tuple(item.namespace) == tuple(namespace)]
            known = {item.key: target.get(namespace, item.key) for item in found}
            new: list[Op] = [
                PutOp(namespace, item.key, item.value)
                for item in found
                if (same := known[item.key]) is None or same.value != item.value
            ]
            copied += len(target.batch(new)) if new else 0
    return copied


def _pages(read: Callable[[int], list[T]]) -> Iterator[list[T]]:
    offset = 0
    while page := read(offset):
        yield page
        offset += len(page)
