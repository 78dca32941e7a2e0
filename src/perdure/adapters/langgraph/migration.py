"""Copies checkpoints from another checkpoint saver of LangGraph."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from perdure.adapters.langgraph.saver import PerdureSaver


def copy_checkpoints(
    source: BaseCheckpointSaver[Any], target: PerdureSaver, thread_id: str | None = None
) -> int:
    """Copy the checkpoints and pending writes of `source`, of one thread or all; return how many.

    Repeating a call copies only what is missing. `source` keeps everything. Its pending writes
    have no place among the tasks any more, and keep their order. Durable: when this returns.
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
