"""``perdure serve``: the API and the console over a store, until it is stopped."""

from __future__ import annotations

import inspect
import os
import socket
import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import typer

from perdure.apps.chat.command import cast_for
from perdure.apps.chat.permissions import permissions_of
from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.server.access.tokens import TokenFile
from perdure.apps.serving.places import tokens_of
from perdure.apps.settings.layers import Configuration
from perdure.apps.terminal.output import remark, show
from perdure.apps.wiring import models
from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.store import Store
from perdure.errors import ConfigError

PORT = 8321
IDLE_S = 30 * 60
_LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))

FactoryArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:FACTORY",
        help="A function of your program: it takes the store and returns a Runtime, or agents.",
    ),
]


ProjectsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--project",
        metavar="DIR",
        help="A folder in which the console can start flows; default: this folder.",
    ),
]


DrainOption = Annotated[
    float, typer.Option(min=0, metavar="N", help="After SIGTERM: serve so long as not ready.")
]


def add_to(program: typer.Typer) -> None:
    """Make ``perdure serve`` known."""
    program.command("serve")(serve)


async def serve(  # noqa: PLR0913 - each is an option of its own
    factory: FactoryArgument = "",
    *,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port to listen on; 0 takes a free one.")
    ] = PORT,
    host_name: Annotated[
        list[str] | None,
        typer.Option("--host-name", metavar="NAME", help="A name under which it is reached."),
    ] = None,
    behind_proxy: Annotated[
        bool,
        typer.Option("--behind-proxy", help="A proxy on this machine or network adds TLS."),
    ] = False,
    tls_certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", metavar="FILE", help="Certificate chain.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key.")
    ] = None,
    projects: ProjectsOption = None,
    idle_minutes: Annotated[
        float, typer.Option(min=0.1, help="End a session without a message for that long.")
    ] = IDLE_S / 60,
    drain_seconds: DrainOption = 0.0,
    common: CommonOptions,
) -> None:
    """Serve the API and the console over a store.

    Prints an address that signs you in once; other callers need a token (`perdure token create`).
    Without MODULE:FACTORY it serves the agents of your settings and agent files. It listens on this
    machine only, unless --tls-certificate or --behind-proxy is given. Ctrl-C and SIGTERM suspend
    running turns; the next start continues them.

    Examples:
        perdure serve
        perdure serve shop.agents:runtime --port 8000
        perdure serve --host 0.0.0.0 --behind-proxy --host-name chat.example.com

    Exit codes:
        2  the extra "server" is not installed, or the address is not safe or not free
    """
    wanted = Wanted(
        host,
        port,
        tuple(host_name or ()),
        tls_certificate,
        tls_key,
        is_proxied=behind_proxy,
        projects=tuple(projects or (Path.cwd(),)),
        drain_s=drain_seconds,
    )
    wanted.check()
    require_server()
    async with common.writable_store() as store:
        await serve_store(store, wanted, factory, idle_minutes * 60)


def require_server() -> None:
    """Raises: ConfigError without the extra that the server needs."""
    _libraries()


async def serve_store(
    store: Store, wanted: Wanted, factory: str = "", idle_s: float = IDLE_S
) -> None:
    """Serve `store` until SIGINT or SIGTERM. Raises: UsageMistake; ConfigError."""
    libraries = _libraries()
    async with (
        _runtime_of(factory, store, idle_s) as runtime,
        _listening(wanted.host, wanted.port) as listening,
    ):
        await _serve(wanted, runtime, await tokens_of(store), listening, libraries)


class Wanted(msgspec.Struct, frozen=True):
    """Where the server listens, how it is reached, and where flows can be started."""

    host: str = "127.0.0.1"
    port: int = 0
    names: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    is_proxied: bool = False
    projects: tuple[Path, ...] = ()
    drain_s: float = 0.0

    def check(self) -> None:
        """Raises: UsageMistake for an address that other machines reach without encryption."""
        if (self.certificate is None) != (self.key is None):
            raise UsageMistake("--tls-certificate and --tls-key belong together")
        if self.host not in _LOOPBACK and self.certificate is None and not self.is_proxied:
            raise UsageMistake(
                f"listening on {self.host} needs TLS (--tls-certificate and --tls-key), or a "
                "proxy in front that adds it (--behind-proxy)"
            )

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names under which it is reached."""
        return self.names if self.host in _LOOPBACK else (*self.names, self.host)

    def address(self, port: int) -> str:
        """The address for a browser."""
        scheme = "http" if self.certificate is None else "https"
        return f"{scheme}://{self.hosts[0] if self.hosts else '127.0.0.1'}:{port}"


async def _serve(
    wanted: Wanted,
    runtime: Runtime,
    tokens: TokenFile,
    listening: socket.socket,
    libraries: tuple[Any, Any],
) -> None:
    """Serve until SIGINT or SIGTERM."""
    draining, application = libraries
    codes = application.sign_in_of(runtime.host.store, tokens)
    served = application.app(
        runtime, tokens=tokens, hosts=wanted.hosts, signing_in=codes, projects=wanted.projects
    )
    config = draining.config(
        app=served,
        log_level="warning",
        proxy_headers=wanted.is_proxied,
        ssl_certfile=wanted.certificate,
        ssl_keyfile=wanted.key,
        timeout_graceful_shutdown=2,
    )
    show(f"{wanted.address(listening.getsockname()[1])}/#code={codes.code()}")
    remark("open this address within 15 minutes; it signs you in once. Stop with Ctrl-C.")
    sys.stdout.flush()
    server = draining.DrainingServer(config, served.drain, wanted.drain_s)
    await server.serve(sockets=[listening])


def _libraries() -> tuple[Any, Any]:
    """Return the modules of process and application. Raises: ConfigError without the extra."""
    try:
        return (
            import_module("perdure.apps.serving.draining"),
            import_module("perdure.apps.server.application"),
        )
    except ModuleNotFoundError as error:
        if error.name not in ("uvicorn", "litestar"):
            raise
        raise ConfigError(
            "the server needs the extra \"server\": pip install 'perdure[server]'"
        ) from error


@asynccontextmanager
async def _listening(host: str, port: int) -> AsyncGenerator[socket.socket]:
    """Yield a socket that listens. Raises: UsageMistake when the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise UsageMistake(
            f"cannot listen on {host}:{port} ({error.strerror}); choose another with --port"
        ) from error
    with listening:
        # Accepted sockets inherit it: asyncio sets it too late, and an answer would wait for 45 ms.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield listening


@asynccontextmanager
async def _runtime_of(factory: str, store: Store, idle_s: float) -> AsyncGenerator[Runtime]:
    """Yield the runtime of the program, or one with the agents of the settings."""
    made = await _made(factory, store) if factory else _configured(store, idle_s)
    runtime = made if isinstance(made, Runtime) else Runtime(store, made, idle_timeout_s=idle_s)
    async with runtime:
        yield runtime


def _configured(store: Store, idle_s: float) -> Runtime:
    settings = Configuration(Path(), os.environ)
    allowed = permissions_of(os.environ, configuration=settings)
    chosen = cast_for(None, settings, os.environ, allowed, is_permitting=False)
    return Runtime(
        store,
        [chosen.agent, *(each for each in chosen.others if each.id != chosen.agent.id)],
        models=models(),
        prices=chosen.prices,
        mcp_servers=chosen.servers,
        idle_timeout_s=idle_s,
    )


async def _made(factory: str, store: Store) -> Runtime | Iterable[Agent]:
    """Call the function that `factory` names. Raises: ConfigError when it cannot be used."""
    module_name, colon, name = factory.partition(":")
    if not (colon and module_name and name):
        raise UsageMistake(f"{factory!r} is not MODULE:FACTORY, for example shop.agents:runtime")
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
    try:
        found: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.partition(".")[0] and error.name != module_name:
            raise
        raise ConfigError(f"there is no module {module_name!r} here or installed") from error
    function = getattr(found, name, None)
    if not callable(function):
        raise ConfigError(f"module {module_name!r} has no function {name!r}")
    made = function(store)
    if inspect.isawaitable(made):
        made = await made
    if isinstance(made, Runtime):
        return made
    several = list(cast("Iterable[object]", made)) if isinstance(made, Iterable) else [made]
    agents = [agent for agent in several if isinstance(agent, Agent)]
    if not agents or len(agents) < len(several):
        raise ConfigError(f"{factory} must return a perdure.Runtime, or agents")
    return agents
