"""``perdure cluster status``: the workers of a database, and the queues of a namespace."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.cli.surface.groups import Group
from perdure.apps.terminal.output import plain_table
from perdure.apps.terminal.text import safe
from perdure.client.cluster.runner import cluster_of
from perdure.client.cluster.status import cluster_status
from perdure.stores.cluster.limits import LimitInfo
from perdure.stores.cluster.protocol import ClusterStatus, QueueInfo, WorkerInfo

cluster = Group(
    {"limit": "perdure.apps.cluster.limit_command:limit"},
    help="""Show the workers and queues of a store on PostgreSQL, and limit the work of workers.

Examples:
    perdure cluster status --store postgresql://me@db.example/agents
    perdure cluster limit provider:anthropic --turns 20
""",
    no_args_is_help=True,
)


@cluster.command("status")
async def status(*, common: CommonOptions) -> None:
    """Show the workers and limits of the database and the queues of the namespace.

    A queue that no worker serves is stuck: start a worker with the agent and the tools of the
    queue. A turn that waits for a limit is counted as running.

    Examples:
        perdure cluster status
        perdure cluster status --json

    Exit codes:
        2  the store is not on PostgreSQL
    """
    async with common.existing_store() as store:
        found = await cluster_status(store.backend, store.outside.clock)
        limits = await cluster_of(store.backend).limits.infos()
    whole = {**msgspec.to_builtins(found), "limits": msgspec.to_builtins(limits)}
    common.show(whole, _lines(found, limits))


def _lines(found: ClusterStatus, limits: Sequence[LimitInfo]) -> list[str]:
    lines = ["Workers", *_table_of_workers(found.workers)] if found.workers else ["No workers."]
    lines += ["", "Queues", *_table_of_queues(found.queues)] if found.queues else ["", "No queues."]
    if limits:
        lines += ["", "Limits", *_table_of_limits(limits)]
    counts = ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in found.counts.items())
    return [*lines, "", f"Since the database was made: {counts or 'no takeover'}"]


def _table_of_workers(workers: tuple[WorkerInfo, ...]) -> list[str]:
    return plain_table(
        {
            "id": each.id,
            "state": each.state,
            "running": str(each.running),
            "slots": str(each.slots),
            "up": _duration(each.up_s),
            "silent": f"{each.silent_s:.1f} s",
            "version": safe(each.version),
            "agents": safe(", ".join(each.agents)),
            "process": safe(each.owner),
        }
        for each in workers
    )


def _table_of_queues(queues: tuple[QueueInfo, ...]) -> list[str]:
    return plain_table(
        {
            "agent": safe(each.agent),
            "waiting": str(each.waiting),
            "oldest": "" if each.oldest_s is None else _duration(each.oldest_s),
            "running": str(each.running),
            "scheduled": str(each.scheduled),
            "workers": _served(each),
        }
        for each in queues
    )


def _table_of_limits(limits: Sequence[LimitInfo]) -> list[str]:
    return plain_table(
        {
            "subject": safe(each.limit.subject),
            "turns at once": _number(each.limit.turns),
            "running": "" if each.limit.turns is None else str(each.running),
            "wait": "" if each.limit.turns is None else str(each.held),
            "oldest": "" if each.oldest_s is None else _duration(each.oldest_s),
            "requests per min": _number(each.limit.per_minute),
            "next in": "" if each.limit.per_minute is None else _duration(each.next_request_s),
            "may wait": _number(each.limit.waiting),
        }
        for each in limits
    )


def _number(limit: int | None) -> str:
    return "" if limit is None else str(limit)


def _served(queue: QueueInfo) -> str:
    if queue.served_by:
        return str(len(queue.served_by))
    return "none: stuck" if queue.waiting else "none"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
