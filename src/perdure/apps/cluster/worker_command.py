"""``perdure worker``: run queued turns until the worker is stopped."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Annotated

import typer

from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.cluster.patience import when_available
from perdure.apps.server_commands.factory import FactoryArgument, made_by
from perdure.apps.store_access import writable_store
from perdure.apps.terminal.output import remark
from perdure.client.agents.runtime import Runtime
from perdure.client.cluster.worker import SLOTS, Worker
from perdure.client.store import Store
from perdure.errors import ConfigError

DRAIN_S = 25.0
"""Default time to drain, which is less than the 30 s after which Kubernetes kills a container."""

SlotsOption = Annotated[
    int,
    typer.Option(
        min=1,
        max=1000,
        metavar="N",
        help="Maximum number of simultaneous turns of each agent in each namespace.",
    ),
]

DrainOption = Annotated[
    float,
    typer.Option(
        min=0, metavar="N", help="The seconds that running turns get to end after SIGTERM."
    ),
]


async def worker(
    factory: FactoryArgument,
    *,
    also: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMESPACE", help="Another namespace to serve."),
    ] = None,
    slots: SlotsOption = SLOTS,
    drain_seconds: DrainOption = DRAIN_S,
    common: CommonOptions,
) -> None:
    """Run queued turns of a store on PostgreSQL, together with other workers.

    Start any number of workers, on any machine. Programs queue turns with Runtime(runner="workers")
    or PERDURE_RUNNER=workers. A worker runs the turns whose agent and tools it has, and the flows
    whose agents and folders it has. If a worker dies, other workers continue the turns of the dead
    worker within two seconds. SIGTERM and Ctrl-C drain the worker: running turns get time to end,
    and other workers continue the turns that do not end in time.

    If the database cannot be reached at the start, the worker prints the reason and retries,
    waiting at most five seconds each time. The worker also retries if the password is wrong, or if
    the PostgreSQL role or the database is missing. The worker ends if the PostgreSQL role lacks a
    grant, or if the version of PostgreSQL is too old.

    Examples:
        perdure worker shop.agents:runtime --store postgresql://me@db.example/agents
        perdure worker shop.agents:runtime --also tenant-b --slots 64

    Exit codes:
        1  the database refused the worker
        2  the store is not on PostgreSQL, --also is in another database, or an extra is missing
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as opened:
        runtimes: dict[str, Runtime] = {}
        for namespace in dict.fromkeys((common.namespace, *(also or ()))):
            store = await _opened(opened, common.store, namespace, stopping)
            if store is None:
                return
            _check_database(store, runtimes)
            made = await made_by(factory, store)
            runtime = made if isinstance(made, Runtime) else Runtime(store, made)
            runtimes[store.backend.namespace] = await opened.enter_async_context(runtime)
        id = await _begun(opened, Worker(runtimes, slots=slots), drain_seconds, stopping)
        if id is not None:
            common.show({"worker": id}, f"worker {id}")
            remark("it takes queued turns. Stop with Ctrl-C or SIGTERM.")
            sys.stdout.flush()
            await stopping.wait()


def _check_database(store: Store, runtimes: Mapping[str, Runtime]) -> None:
    """Raise an error unless all namespaces of the worker are in one database.

    Raises: ConfigError.
    """
    for namespace, runtime in runtimes.items():
        first = runtime.host.store.backend
        if first.address != store.backend.address:
            raise ConfigError(
                f"the namespaces {namespace!r} and {store.backend.namespace!r} are in different "
                f"databases, {first.address} and {store.backend.address}: start a worker for each"
            )


async def _opened(
    opened: AsyncExitStack, named: str | None, namespace: str, stopping: asyncio.Event
) -> Store | None:
    """Open the store when its server is up; return None if `stopping` is set earlier.

    Closing `opened` closes the store.
    """
    return await when_available(
        lambda: opened.enter_async_context(writable_store(named, namespace)), stopping
    )


async def _begun(
    opened: AsyncExitStack, running: Worker, drain_s: float, stopping: asyncio.Event
) -> str | None:
    """Start the worker and return its id; return None if `stopping` is set earlier.

    Closing `opened` stops the worker.
    """
    return await when_available(
        lambda: opened.enter_async_context(running.taking(drain_s)), stopping
    )
