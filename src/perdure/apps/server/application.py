"""The ASGI application for a runtime: routes, access control, and error answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping, Sequence
from functools import cache
from os import PathLike
from types import ModuleType
from typing import Any, NamedTuple, cast

from litestar import Litestar, Request, Response, Router, get
from litestar.di import NamedDependency, Provide
from litestar.enums import OpenAPIMediaType
from litestar.handlers import BaseRouteHandler
from litestar.middleware import DefineMiddleware
from litestar.types import Receive, Scope, Send

from perdure.apps.server.access.caller import (
    CONDITIONAL,
    READING,
    Authentication,
    Caller,
    Callers,
)
from perdure.apps.server.access.guard import Guard
from perdure.apps.server.access.heads import heads_in
from perdure.apps.server.access.idempotency import Idempotency, Locks, keyed_of
from perdure.apps.server.access.origins import Origins
from perdure.apps.server.access.rates import Limits, Rates
from perdure.apps.server.access.sign_in import SignIn
from perdure.apps.server.access.tokens import TokenFile
from perdure.apps.server.conversations import Conversations
from perdure.apps.server.document import document_of, openapi_config
from perdure.apps.server.flows.runs import FlowRuns
from perdure.apps.server.problems import MAX_BODY_BYTES, answer_problem
from perdure.apps.server.readiness import Readiness
from perdure.apps.server.requests import Requests
from perdure.apps.server.routes import (
    branches,
    console,
    events,
    flow_socket,
    flows,
    inbox,
    mcp,
    messages,
    records,
    sessions,
    sign_in,
    store,
    turns,
)
from perdure.apps.server.routes import memory as memory_routes
from perdure.apps.server.routes.parameters import (
    ApiRequest,
    require_known_parameters,
    selected_rows,
)
from perdure.client.agents.runtime import Runtime
from perdure.client.cluster.scheduler import Scheduler
from perdure.client.memory.handle import Memory
from perdure.client.store import Store
from perdure.errors import PerdureError
from perdure.models.embedders.protocol import Embedder, EmbedderName
from perdure.session.argument_checks import takes_declared

_log = logging.getLogger(__name__)

_API = (
    *(sessions, messages, events, inbox, flow_socket, flows, branches, turns),
    *(records, memory_routes, store, sign_in),
)
"""The modules of the routes below ``/v1``."""

IDLE_CHECK_S = 30.0
_SERVICES = "perdure_services"
"""The key under which a request's scope contains the `Services` of the server."""

LIMITS = Limits()

AnyScope = MutableMapping[str, Any]
AnyReceive = Callable[[], Awaitable[AnyScope]]
AnySend = Callable[[AnyScope], Awaitable[None]]
"""The types of ASGI, in the form that all frameworks accept."""


class Services(NamedTuple):
    """The objects that the routes of one server use."""

    runtime: Runtime
    tokens: TokenFile
    codes: SignIn
    rates: Rates
    callers: Callers
    conversations: Conversations
    runs: FlowRuns
    memory: Memory
    readiness: Readiness
    locks: Locks

    @property
    def store(self) -> Store:
        """The store of the runtime."""
        return self.runtime.host.store


class Server:
    """The server of a runtime as an ASGI application, created by the function `app`.

    The server's background work starts with the ASGI lifespan. If the server is mounted in an
    application that does not forward the lifespan, the work starts with the first request.
    """

    def __init__(self, services: Services, hosts: Sequence[str]) -> None:
        self._background: asyncio.Task[None] | None = None
        self._services = services
        self._routes = _routes()
        shared = Origins(self._serve, services.tokens)
        self._guarded = Requests(Guard(shared, hosts), services.store.outside.random)

    async def __call__(self, scope: AnyScope, receive: AnyReceive, send: AnySend) -> None:
        """Serve one connection."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            self._begin()
            connection = (cast("Scope", scope), cast("Receive", receive), cast("Send", send))
            await self._guarded(*connection)

    def drain(self) -> None:
        """Answer ``/readyz`` with 503 from now on, so that a load balancer uses other servers."""
        self._services.readiness.is_draining = True

    def stop(self) -> None:
        """End the open event streams, because they prevent the server process from exiting."""
        self.drain()
        self._services.readiness.is_stopping = True

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        cast("AnyScope", scope)[_SERVICES] = self._services
        await self._routes(scope, receive, send)

    async def _live(self, receive: AnyReceive, send: AnySend) -> None:
        """Run the background work while the application runs."""
        await receive()
        self._begin()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        try:
            await self._end()
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            await send({"type": "lifespan.shutdown.failed", "message": message})
            raise
        await send({"type": "lifespan.shutdown.complete"})

    def _begin(self) -> None:
        if self._background is None:
            self._background = asyncio.create_task(_look_after(self._services.runtime))

    async def _end(self) -> None:
        self.stop()
        if self._background is not None:
            self._background.cancel()
            await asyncio.wait((self._background,))
        await self._services.runs.close()
        await self._services.runtime.suspend()


@takes_declared
def app(
    runtime: Runtime,
    *,
    tokens: TokenFile,
    hosts: Sequence[str] = (),
    signing_in: SignIn | None = None,
    projects: Sequence[str | PathLike[str]] = (),
    limits: Limits = LIMITS,
    embedder: Embedder | EmbedderName | None = None,
) -> Server:
    """Return the server of `runtime` as an ASGI application, to run or to mount.

    The application serves the API under ``/v1`` and the console under ``/``. `tokens` finds the
    caller of each request. `hosts` are the host names of the server, in addition to those of
    loopback. `signing_in` accepts the one-time codes of the console; without `signing_in`, people
    sign in with a token. `projects` are the folders in which, and below which, flows can be
    started; by default, there is no such folder. `limits` apply to each caller. `embedder` is used
    in recalls and at ``/mcp``; by default, it is the first embedder that an agent of the runtime
    has (`MemoryConfig`). While the application runs, it resumes interrupted turns, sends messages
    that are due, ends idle sessions, and closes expired questions. The caller of this function
    closes the runtime and its store, after the application has ended.

    Raises: WrongArgument; ConfigError if `embedder` is an unknown name.
    """
    store = runtime.host.store
    rates = Rates(limits, store.outside.clock.steady_s)
    services = Services(
        runtime,
        tokens,
        signing_in or sign_in_of(store, tokens),
        rates,
        Callers(store, tokens, rates),
        Conversations(runtime),
        FlowRuns(runtime, projects),
        store.memory.with_embedder(embedder or _embedder_of(runtime)),
        Readiness(store),
        Locks(),
    )
    return Server(services, hosts)


def _embedder_of(runtime: Runtime) -> Embedder | EmbedderName | None:
    """Return the embedder of the first agent that has one."""
    memories = (agent.memory for agent in runtime.host.agents.values())
    found = (each.embedder for each in memories if each is not None)
    return next((each for each in found if each not in (None, "program")), None)


def sign_in_of(store: Store, tokens: TokenFile) -> SignIn:
    """Return the sign-in for the console of `store`."""
    outside = store.outside
    return SignIn(tokens, outside.clock.now_ms, outside.random, store.backend.namespace)


@cache
def _routes() -> Litestar:
    """Return the routes; all servers of this process share them, because creating them takes 80 ms.

    Each route finds the server of a request in the request's scope.
    """
    return Litestar(
        [
            Router(
                "/v1",
                route_handlers=[*_handlers_in(_API), openapi],
                dependencies=_dependencies(),
                request_class=ApiRequest,
            ),
            *_handlers_in((console,)),
            mcp.mcp_route(_mcp_served),
            healthz,
            readyz,
        ],
        dependencies={"readiness": _provided(lambda services: services.readiness)},
        exception_handlers={Exception: answer_problem},
        middleware=[
            DefineMiddleware(Authentication, callers_of=_callers_of),
            Idempotency(lambda scope: _services(scope).locks),
        ],
        openapi_config=openapi_config(),
        request_max_body_size=MAX_BODY_BYTES,
        logging_config=None,
    )


def _handlers_in(modules: Iterable[ModuleType]) -> Iterator[BaseRouteHandler]:
    """Yield the routes that `modules` define."""
    for module in modules:
        yield from (each for each in vars(module).values() if isinstance(each, BaseRouteHandler))


def _services(scope: Scope) -> Services:
    """Return the services of the server that a request was sent to."""
    return cast("Any", scope)[_SERVICES]


def _callers_of(scope: Scope) -> Callers:
    return _services(scope).callers


def _mcp_served(scope: Scope) -> mcp.McpServed:
    services = _services(scope)
    return mcp.McpServed(services.store, embedder=services.memory.embedder)


def _dependencies() -> dict[str, Provide]:
    return {
        "caller": Provide(_caller_of),
        "memory": _provided(lambda services: services.memory),
        "rows": Provide(selected_rows),
        "runs": _provided(lambda services: services.runs),
        "rates": _provided(lambda services: services.rates),
        "conversations": _provided(lambda services: services.conversations),
        "signing_in": _provided(lambda services: services.codes),
    }


def _provided(part_of: Callable[[Services], object]) -> Provide:
    """Return a dependency that gives a route one of the services of the request's server."""

    def part(scope: Scope) -> Any:
        return part_of(_services(scope))

    return Provide(part, sync_to_thread=False)


async def _caller_of(request: Request[Any, Any, Any]) -> Caller:
    services = _services(request.scope)
    require_known_parameters(request)
    keyed = await keyed_of(request)
    heads = heads_in("If-Match", request.headers.getall("if-match", []))

    def is_valid() -> bool:
        return not services.readiness.is_stopping and request.auth()

    caller = Caller(request.user, services.store, heads, keyed, is_valid)
    if request.method not in READING and not request.route_handler.opt.get(CONDITIONAL):
        caller.require_unconditional()
    return caller


async def _look_after(runtime: Runtime) -> None:
    """Resume interrupted turns; send due messages; end idle sessions; close expired questions."""
    await runtime.resume_all()
    async with Scheduler(runtime):
        while True:
            try:
                await runtime.end_idle()
            except PerdureError:
                _log.warning("idle sessions could not be ended", exc_info=True)
            await asyncio.sleep(IDLE_CHECK_S)


@get("/healthz", is_open=True, include_in_schema=False)
async def healthz() -> Response[dict[str, str]]:
    """Answer ``ok`` as long as the process can answer requests."""
    return Response({"status": "ok"})


@get("/readyz", is_open=True, include_in_schema=False)
async def readyz(readiness: NamedDependency[Readiness]) -> Response[dict[str, str]]:
    """Report whether the server accepts requests: its store is writable, and it is not draining."""
    problem = await readiness.problem()
    status = 200 if problem is None else 503
    return Response({"status": problem or "ready"}, status_code=status)


@get(
    "/openapi.json", is_open=True, include_in_schema=False, media_type=OpenAPIMediaType.OPENAPI_JSON
)
async def openapi(request: Request[Any, Any, Any]) -> dict[str, Any]:
    """Return the OpenAPI document of this server, which can be mounted below a path."""
    mounted = cast("dict[str, Any]", request.scope).get("root_path")
    if not mounted:
        mounted = console.sent_path(request).rstrip("/").removesuffix("/v1/openapi.json") or "/"
    return {**document_of(request.app), "servers": [{"url": mounted}]}
