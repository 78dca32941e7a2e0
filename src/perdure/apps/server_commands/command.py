"""``perdure serve``: serves the API and the console for a store, until it is stopped."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer

from perdure.apps.chat.command import cast_for
from perdure.apps.chat.permissions import TypedPermissions
from perdure.apps.cli.options import EmbedderOption, require_folder
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.server_commands.endpoint import (
    EndpointOptions,
    Wanted,
    listen,
    run,
    server_module,
)
from perdure.apps.server_commands.factory import FactoryArgument, made_by
from perdure.apps.server_commands.token_location import tokens_of
from perdure.apps.settings.layers import Configuration
from perdure.apps.terminal.output import remark, show_result
from perdure.apps.terminal.text import safe
from perdure.apps.wiring import models
from perdure.client.agents.runtime import Runtime
from perdure.client.memory import embedding
from perdure.client.store import Store
from perdure.models.catalogue import ECHO
from perdure.models.embedders.protocol import EmbedderName

PORT = 8321
IDLE_S = 30 * 60
_APPLICATION = "perdure.apps.server.application"

ProjectsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--project",
        metavar="DIR",
        help="A folder in which the console can start flows; default: the current folder.",
    ),
]


DrainOption = Annotated[
    float,
    typer.Option(
        min=0,
        metavar="N",
        help="The seconds after SIGTERM in which the server answers requests and reports that it "
        "is not ready.",
    ),
]


async def serve(  # noqa: PLR0913 - each is an option of its own
    factory: FactoryArgument = "",
    *,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port to listen on; 0 selects a free port.")
    ] = PORT,
    endpoint: EndpointOptions,
    projects: ProjectsOption = None,
    idle_minutes: Annotated[
        float,
        typer.Option(min=0, help="End a session after this time without a message; 0: never."),
    ] = IDLE_S / 60,
    drain_seconds: DrainOption = 0.0,
    embedder: EmbedderOption = None,
    common: CommonOptions,
) -> None:
    """Serve the API and the console over a store.

    Prints an address that signs you in once; with --json, the address is in the field `url`. Other
    callers need a token (`perdure token create`). Without MODULE:FACTORY the server offers the
    agents of your settings and agent files. The server listens on this machine only, unless
    --tls-certificate or --behind-proxy is given. Ctrl-C and SIGTERM suspend running turns; the next
    start continues them. Recalls in the console, in the API and at /mcp use the embedder of
    --embedder; without --embedder, recalls use the embedder of an agent.

    Examples:
        perdure serve
        perdure serve shop.agents:runtime --port 8000
        perdure serve --host 0.0.0.0 --behind-proxy --host-name chat.example.com

    Exit codes:
        2  the extra "server" is not installed, or the address is not safe or not free
    """
    wanted = endpoint.wanted(host, port, drain_seconds)
    wanted.check()
    require_server()
    await embedding.require_embedder(embedder)
    folders = tuple(projects or (Path.cwd(),))
    for folder in folders:
        require_folder(folder, "a folder in which flows can start")
    async with common.writable_store() as store:
        await serve_store(
            store,
            wanted,
            factory,
            idle_minutes * 60 or None,
            folders,
            embedder=embedder,
            as_json=common.as_json,
        )


def require_server() -> None:
    """Raises: ConfigError if the extra that the server needs is not installed."""
    server_module("perdure.apps.server_commands.server_process")
    server_module(_APPLICATION)


async def serve_store(
    store: Store,
    wanted: Wanted,
    factory: str = "",
    idle_s: float | None = IDLE_S,
    projects: tuple[Path, ...] = (),
    *,
    embedder: EmbedderName | None = None,
    as_json: bool = False,
) -> None:
    """Serve `store` until SIGINT or SIGTERM; flows can be started in the folders `projects`.

    Shape: with `as_json`, the address is printed as ``{"url"}``.
    Raises: UsageMistake; ConfigError.
    """
    application = server_module(_APPLICATION)
    async with (
        _runtime_of(factory, store, idle_s) as (runtime, idle_end),
        listen(wanted.host, wanted.port) as listening,
    ):
        tokens = await tokens_of(store)
        codes = application.sign_in_of(store, tokens)
        served = application.app(
            runtime,
            tokens=tokens,
            hosts=wanted.hosts,
            signing_in=codes,
            projects=projects,
            embedder=embedder,
        )
        url = f"{wanted.address(listening.getsockname()[1])}/#code={codes.code()}"
        show_result({"url": url}, url, as_json=as_json)
        remark("open this address within 15 minutes; it signs you in once. Stop with Ctrl-C.")
        remark(idle_end)
        remark(_offered(runtime))
        sys.stdout.flush()
        await run(served, wanted, listening)


@asynccontextmanager
async def _runtime_of(
    factory: str, store: Store, idle_s: float | None
) -> AsyncGenerator[tuple[Runtime, str]]:
    """Yield the runtime of `factory` or the settings, and a text on when idle sessions end."""
    made = await made_by(factory, store) if factory else configured(store, idle_s)
    told = "sessions never end as idle (--idle-minutes 0)."
    if factory and isinstance(made, Runtime):
        told = f"{factory} decides when idle sessions end: Runtime(idle_timeout_s=...)."
    elif idle_s is not None:
        told = f"a session ends after {idle_s / 60:g} minutes without a message; imported "
        told += "sessions never do. --idle-minutes 0: none does."
    runtime = made if isinstance(made, Runtime) else Runtime(store, made, idle_timeout_s=idle_s)
    async with runtime:
        yield runtime, told


def configured(store: Store, idle_s: float | None = None) -> Runtime:
    """Return the runtime that ``perdure serve`` uses in this folder if MODULE:FACTORY is not given.

    Raises: ConfigError; InvalidAgentFile.
    """
    settings = Configuration(Path(), os.environ)
    chosen = cast_for(None, settings, os.environ, TypedPermissions())
    return Runtime(
        store,
        [chosen.agent, *(each for each in chosen.others if each.id != chosen.agent.id)],
        models=models(),
        prices=chosen.prices,
        mcp_servers=chosen.servers,
        idle_timeout_s=idle_s,
    )


def _offered(runtime: Runtime) -> str:
    names = [
        f"{each.id} (new sessions: {ECHO}, no language model)" if each.model == ECHO else each.id
        for each in runtime.host.agents.values()
    ]
    return f"offers {', '.join(map(safe, names))}; scheduled messages of other agents wait."
