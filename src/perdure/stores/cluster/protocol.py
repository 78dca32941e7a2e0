"""The cluster service of a store: queued work, workers and their state.

Only the log decides what is to be done: a ``turn_requested`` without an answer is work. A service
stores only control state, which the workers can rebuild from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from perdure.bounds.short_repr import ShortRepr
from perdure.session.ids import StreamId
from perdure.session.ledger import Priority
from perdure.stores.cluster.limits import LimitService

PROTOCOL = 2
"""The version of the rules by which workers share work; workers share only within one version.

Since version 2, several tool calls of a turn can be open; earlier workers cannot resume such a
turn.
"""

ACTIVE = frozenset({"ENQUEUED", "DELAYED", "PENDING"})
"""The states of work that is queued or runs; work in any other state has ended."""

RANKS: Mapping[Priority, int] = {"high": -1, "normal": 0, "low": 1}
"""Priority -> its number in the database; work with the lowest number is first."""

WorkerState = Literal["alive", "draining", "dead"]


class Work(msgspec.Struct, frozen=True, array_like=True):
    """A piece of work: the turn, or the run of a flow, for the request at seq `request`.

    Without a request, the work is the open turn that began at seq `turn`. A turn that ended without
    an answer is queued again, with another `attempt`. For the run of a flow, `attempt` is the time
    when the run was queued, in Unix milliseconds.
    """

    namespace: str
    stream: StreamId
    request: int | None
    turn: int | None = None
    attempt: int = 0

    @property
    def id(self) -> str:
        """Return the id of the work; `work_of` decodes it."""
        return msgspec.json.encode(self).decode()


def work_of(id: str) -> Work:
    """Return the work with this id. Raises: msgspec.DecodeError."""
    return msgspec.json.decode(id, type=Work)


class Order(msgspec.Struct, frozen=True):
    """Work to be queued. Workers of `queue` must satisfy `requires`, which is JSON.

    Units: `due_at` is Unix milliseconds.
    """

    work: Work
    queue: str
    requires: bytes
    due_at: int | None = None
    priority: Priority = "normal"


class WorkerInfo(ShortRepr, frozen=True, kw_only=True):
    """The last report of a worker.

    `queues` are the queues from which the worker takes work. Units: seconds; `silent_s` is the time
    since the last report.
    """

    id: str
    owner: str
    version: str
    protocol: int
    namespaces: tuple[str, ...]
    agents: tuple[str, ...]
    slots: int
    running: int
    state: WorkerState
    up_s: float
    silent_s: float
    queues: tuple[str, ...] = ()


class QueueInfo(ShortRepr, frozen=True, kw_only=True):
    """The work of one queue.

    `served_by` are the workers of the queue; without a worker, the work waits. Units: seconds;
    `oldest_s` is the waiting time of the work that has waited longest.
    """

    queue: str
    agent: str
    waiting: int
    scheduled: int
    running: int
    oldest_s: float | None
    served_by: tuple[str, ...] = ()


class ClusterStatus(ShortRepr, frozen=True, kw_only=True):
    """The workers of a database, and the queues of one namespace.

    `counts` contains numbers since the creation of the database. ``takeovers`` counts the workers
    that were declared dead. ``false_takeovers`` counts the workers that reported again after they
    were declared dead. ``requeued`` counts the pieces of work that were queued again. A piece of
    work that waits because of a limit counts as running in its queue.
    """

    workers: tuple[WorkerInfo, ...]
    queues: tuple[QueueInfo, ...]
    counts: Mapping[str, int]


class WorkerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a worker about itself. `owner` is the owner name in the worker's leases."""

    id: str
    owner: str
    version: str
    namespaces: tuple[str, ...]
    agents: tuple[str, ...]
    slots: int


class Liveness(Protocol):
    """Reports the state of one worker regularly, from `start` to `stop`.

    `dead_owners` are the lease owners that are known to be dead. `queues` are the queues from which
    the worker takes work, and `running` returns how many pieces of work it runs.
    """

    dead_owners: frozenset[str]
    queues: frozenset[str]
    is_draining: bool
    running: Callable[[], int]

    def start(self) -> None:
        """Register the worker, and start reporting. The call blocks until the worker is registered.

        Raises: the errors of the server's driver.
        """
        ...

    def stop(self) -> None:
        """Stop reporting, and remove the worker. Blocks."""
        ...


class ClusterService(Protocol):
    """Queues work of one namespace, and reports on this work.

    The queue library connects with `conninfo`. If `conninfo` is the address of a pooler, `direct`
    is the address of the server itself.
    """

    conninfo: str
    direct: str
    limits: LimitService

    def liveness(self, facts: WorkerFacts) -> Liveness:
        """Return the `Liveness` of a worker of the database; its reports are not started yet."""
        ...

    def may_pass(self, error: BaseException) -> bool:
        """Return whether a retry may succeed after `error` of the server or its driver."""
        ...

    async def enqueue(self, order: Order) -> bool:
        """Queue work; do nothing if work with the same id was queued before.

        Durable: the work is queued when the call returns. Shape: the result is False if no worker
        has prepared the database yet; the request then waits in the log.
        """
        ...

    async def requirements(self) -> dict[str, bytes]:
        """Return what each queue of the namespace requires of its workers."""
        ...

    async def states_of(self, works: Sequence[Work]) -> dict[str, str]:
        """Return a map from the id of queued work to its state; unknown work is omitted."""
        ...

    async def adopt(self) -> None:
        """Take over waiting work of protocol versions that no worker supports any more.

        So no waiting work is lost in a rolling upgrade or a rollback of perdure.
        """
        ...

    async def busy(self, streams: Sequence[StreamId]) -> set[StreamId]:
        """Return those of `streams` that have due or running work."""
        ...

    async def limit_stalls(self) -> None:
        """Make the server end a transaction that is idle so long that its worker counts as dead.

        Without a limit on idle transactions, a worker that is suspended inside a transaction would
        block its sessions for other workers.
        """
        ...

    async def begun(self, worker: str) -> list[Work]:
        """Return the work, of all namespaces, that `worker` has begun and not ended."""
        ...

    async def requeue(self, worker: str, works: Sequence[Work]) -> None:
        """Requeue those `works` that `worker` has begun and not ended."""
        ...

    async def losses(self, work: Work) -> int:
        """Return how many workers died while they ran `work`."""
        ...

    async def forget_losses(self, work: Work) -> None:
        """Forget the workers that died while they ran `work`, because `work` is done."""
        ...

    async def take_upkeep(self, worker: str, every_s: Mapping[str, float]) -> set[str]:
        """Return the tasks that `worker` must do now; `every_s` maps each task to its period.

        No other worker receives the returned tasks until `end_upkeep` is called, or until `worker`
        is dead. The tasks of a dead worker are due at once; any other task is due when its period
        (in seconds) has passed since the task last began. A task that the worker already has is
        returned again, because the answer of an earlier call may be lost.
        """
        ...

    async def end_upkeep(self, worker: str, task: str) -> None:
        """Record that `worker` has ended `task`, if `task` still belongs to it."""
        ...

    async def status(self) -> ClusterStatus:
        """Return the workers of the database and the queues of the namespace."""
        ...


@runtime_checkable
class SharedStore(Protocol):
    """A store whose work several machines can share."""

    @property
    def cluster(self) -> ClusterService: ...
