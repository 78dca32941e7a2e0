"""The cluster service of a store: queued work, workers and their state.

The log is the truth: a ``turn_requested`` without an answer is work to do. A service stores only
control state, which the workers can rebuild from the log.
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
"""The version of the rules by which workers share work. Workers of one number share it.

Since 2 several tools of a turn may be open, which earlier workers cannot resume.
"""

ACTIVE = frozenset({"ENQUEUED", "DELAYED", "PENDING"})
"""The states of work that is queued or runs; work in any other state has ended."""

RANKS: Mapping[Priority, int] = {"high": -1, "normal": 0, "low": 1}
"""The numbers of priorities in the database: the lowest is first."""

WorkerState = Literal["alive", "draining", "dead"]


class Work(msgspec.Struct, frozen=True, array_like=True):
    """A piece of work: the turn of the request at seq `request` of a session.

    Without a request it is the open turn begun at seq `turn`. `attempt` tells apart the work that
    is queued again because it ended without an answer.
    """

    namespace: str
    stream: StreamId
    request: int | None
    turn: int | None = None
    attempt: int = 0

    @property
    def id(self) -> str:
        """The id of the work, from which `work_of` makes it again."""
        return msgspec.json.encode(self).decode()


def work_of(id: str) -> Work:
    """Return the work with this id. Raises: msgspec.DecodeError."""
    return msgspec.json.decode(id, type=Work)


class Order(msgspec.Struct, frozen=True):
    """Work to be queued. `queue` is for workers that satisfy `requires`, which is JSON.

    Units: `due_at` is Unix milliseconds.
    """

    work: Work
    queue: str
    requires: bytes
    due_at: int | None = None
    priority: Priority = "normal"


class WorkerInfo(ShortRepr, frozen=True, kw_only=True):
    """A worker as it last reported. `queues` are those that it takes work from.

    Units: seconds; `silent_s` is since its last report.
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
    """The work of one queue. `served_by` are the workers that take it; none: it is stuck.

    Units: `oldest_s` seconds that the oldest waiting work has waited.
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

    `counts` has ``takeovers``, ``false_takeovers`` and ``requeued`` since the database was made.
    Work that a limit holds back counts as running in its queue.
    """

    workers: tuple[WorkerInfo, ...]
    queues: tuple[QueueInfo, ...]
    counts: Mapping[str, int]


class WorkerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a worker about itself. `owner` is the owner of its leases."""

    id: str
    owner: str
    version: str
    namespaces: tuple[str, ...]
    agents: tuple[str, ...]
    slots: int


class Liveness(Protocol):
    """The reports of one worker, from `start` to `stop`.

    `dead_owners` are the owners of leases that are known to be dead. `queues` are those that the
    worker takes from, and `running` counts the work that it runs.
    """

    dead_owners: frozenset[str]
    queues: frozenset[str]
    is_draining: bool
    running: Callable[[], int]

    def start(self) -> None:
        """Register the worker, and report from now on. Blocks until it is registered.

        Raises: the errors of the server's driver.
        """
        ...

    def stop(self) -> None:
        """Report no more, and remove the worker. Blocks."""
        ...


class ClusterService(Protocol):
    """Queue work and report on it, for one namespace.

    The library of queues connects with `conninfo`. If that is the address of a pooler, `direct` is
    the address of the server itself.
    """

    conninfo: str
    direct: str
    limits: LimitService

    def liveness(self, facts: WorkerFacts) -> Liveness:
        """Return the reports of a worker of the database, not started yet."""
        ...

    def may_pass(self, error: BaseException) -> bool:
        """Whether trying again may help after `error` of the server or its driver."""
        ...

    async def enqueue(self, order: Order) -> bool:
        """Queue work; do nothing if work with its id was queued before.

        Durable: on return. Shape: False if no worker has prepared the database yet; the request
        then waits in the log.
        """
        ...

    async def requirements(self) -> dict[str, bytes]:
        """Return what the work of each queue of the namespace requires."""
        ...

    async def states_of(self, works: Sequence[Work]) -> dict[str, str]:
        """Return the states of queued work by id; unknown work is missing."""
        ...

    async def adopt(self) -> None:
        """Take over waiting work of other protocol numbers that no worker has any more.

        So a rolling upgrade loses no work of the old version, and neither does its way back.
        """
        ...

    async def busy(self, streams: Sequence[StreamId]) -> set[StreamId]:
        """Return those of `streams` that have work which is due or runs."""
        ...

    async def limit_stalls(self) -> None:
        """Have the server end transactions of this store that stand still as long as a dead worker.

        A worker that is stopped inside a transaction would keep others from its sessions.
        """
        ...

    async def begun(self, worker: str) -> list[Work]:
        """Return the work that `worker` has begun and not ended, of all namespaces."""
        ...

    async def requeue(self, worker: str, works: Sequence[Work]) -> None:
        """Put those of `works` that `worker` has begun and not ended back into their queues."""
        ...

    async def losses(self, work: Work) -> int:
        """Return how many workers died while they ran `work`."""
        ...

    async def forget_losses(self, work: Work) -> None:
        """Forget the workers that died while they ran `work`: it is done."""
        ...

    async def take_upkeep(self, worker: str, every_s: Mapping[str, float]) -> set[str]:
        """Return the tasks that `worker` has to do now, of those in `every_s`.

        No other worker gets them until `end_upkeep`, or until this one is dead. Then they are due
        at once, else again when that many seconds have passed since they began. A task that the
        worker has already is returned again: the answer of an earlier call may be lost.
        """
        ...

    async def end_upkeep(self, worker: str, task: str) -> None:
        """Say that `worker` has ended `task`, if it still is its task."""
        ...

    async def status(self) -> ClusterStatus:
        """Return the workers of the database and the queues of the namespace."""
        ...


@runtime_checkable
class SharedStore(Protocol):
    """A store whose work several machines can share."""

    @property
    def cluster(self) -> ClusterService: ...
