"""``perdure mcp``: list and test the MCP servers of agents, and run perdure as an MCP server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.options import EmbedderOption, JsonOption
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.mcp_server import server as mcp_server
from perdure.apps.mcp_server.history import Scope
from perdure.apps.server_commands import mcp as mcp_http
from perdure.apps.server_commands.endpoint import EndpointOptions, Wanted
from perdure.apps.settings.agents import agents_here
from perdure.apps.settings.layers import Configuration, FaultyServer
from perdure.apps.settings.servers import SETTINGS, Known, known_servers, server_named
from perdure.apps.terminal.output import (
    count_of,
    out_style,
    show_result,
    width,
)
from perdure.apps.terminal.text import Column, one_line, safe, table
from perdure.client.agents.files.lookup import FoundAgentFile
from perdure.client.agents.files.reader import agent_in
from perdure.client.memory import embedding
from perdure.errors import InvalidSettings
from perdure.secrets.vault import Vault
from perdure.tools.mcp.connection import Connection
from perdure.tools.mcp.server_tools import Offer, offer_tools
from perdure.tools.mcp.servers import McpServer

SubjectOption = Annotated[
    str | None, typer.Option(metavar="S", help="Show the sessions of this subject.")
]
AllOption = Annotated[
    bool, typer.Option("--all-subjects", help="Show the sessions of every subject.")
]
WriteOption = Annotated[
    bool, typer.Option("--allow-write", help="Let the client remember, correct and forget facts.")
]
HttpOption = Annotated[
    bool, typer.Option("--http", help="Serve HTTP at /mcp, for clients with a token.")
]
HostOption = Annotated[
    str | None, typer.Option(help="With --http: the address to listen on; default: 127.0.0.1.")
]
PortOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65_535,
        help="With --http: the port to listen on; 0 selects a free port; default: 8322.",
    ),
]

mcp = typer.Typer(no_args_is_help=True)


@mcp.callback()
def mcp_itself() -> None:
    """List and test the MCP servers of your settings and agents, or run perdure as an MCP server.

    Define a server in the settings as [mcp.servers.NAME]. Agent files refer to a server by its
    name. Chats without an agent file use the servers in `chat.mcp_servers`.

    Examples:
        perdure mcp list
        perdure mcp test git
        perdure mcp serve
    """


@mcp.command("list")
def list_servers(*, as_json: JsonOption = False) -> None:
    """List the MCP servers with the file that configures each, without connecting to the servers.

    An invalid server is listed too, with every error and its line.

    Examples:
        perdure mcp list
        perdure mcp list --json
    """
    configuration = Configuration(Path(), os.environ, is_lenient=True)
    known = known_servers(configuration, agents_here(Path(), os.environ))
    faulty = configuration.faulty_servers
    lines = [*(_table(known) if known else ()), *_faults(faulty)]
    none = "No MCP servers here; docs/guides/mcp.md says how to add one."
    data = [*map(_row, known), *map(_faulty_row, faulty)]
    show_result(data, lines or none, as_json=as_json)


@mcp.command("serve")
async def serve(  # noqa: PLR0913 - each is an option of its own
    *,
    subject: SubjectOption = None,
    all_subjects: AllOption = False,
    allow_write: WriteOption = False,
    embedder: EmbedderOption = None,
    http: HttpOption = False,
    host: HostOption = None,
    port: PortOption = None,
    endpoint: EndpointOptions,
    common: CommonOptions,
) -> None:
    """Serve the sessions and the memory of a store to MCP clients.

    Without --http, the MCP client starts this command; docs/guides/mcp.md shows how to configure
    the client. Without --subject the client sees the sessions that have no subject. With --http the
    command prints its address (--json: `url`) and serves many clients. Each client sends a token
    that `perdure token create` created. The token decides which sessions the client sees; a token
    of the role read can only read. perdure listens on this machine only, unless --tls-certificate
    or --behind-proxy is given. A client can search, recall and read; with --allow-write it can also
    change facts. Secrets are masked, and long texts are cut. `perdure serve` offers the same tools
    at /mcp.

    Examples:
        perdure mcp serve
        perdure mcp serve --store sqlite:///agents.db --allow-write
        perdure mcp serve --http --port 9000

    Exit codes:
        2  options that exclude each other, an unsafe or used address, or a missing extra
    """
    wanted = endpoint.wanted(host or "127.0.0.1", mcp_http.PORT if port is None else port)
    await embedding.require_embedder(embedder)
    if not http:
        if wanted != Wanted(port=mcp_http.PORT) or host is not None or port is not None:
            raise UsageMistake("options of an address need --http: add it, or leave them out")
        scope = _scope(subject, is_all=all_subjects, is_writable=allow_write)
        opening = common.writable_store() if allow_write else common.existing_store()
        async with opening as store:
            await mcp_server.serve(store, scope, is_writable=allow_write, embedder=embedder)
        return
    if subject is not None or all_subjects:
        raise UsageMistake(
            "with --http each token says whose sessions it sees: `perdure token create --subject`"
        )
    wanted.check()
    async with common.writable_store() as store:
        await mcp_http.serve_http(
            store, wanted, is_writable=allow_write, embedder=embedder, as_json=common.as_json
        )


def _scope(subject: str | None, *, is_all: bool, is_writable: bool) -> Scope:
    if subject is not None and is_all:
        raise UsageMistake("use --subject or --all-subjects, not both")
    if is_all and is_writable:
        raise UsageMistake("--allow-write needs one subject: leave out --all-subjects")
    return Scope(subject, is_all=is_all)


@mcp.command("test")
async def try_server(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name of the server in `perdure mcp list`.")
    ],
    *,
    agent: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Search for the server in this agent file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Connect to an MCP server, and show which tools an agent gets and why others are missing.

    Connects to the server in the same way as a session in this folder, and disconnects. Calls no
    tool.

    Examples:
        perdure mcp test git
        perdure mcp test docs --agent helper.agent.yaml --json

    Exit codes:
        1  the server cannot be used
        2  several servers have that name, or the settings of the server have errors
        3  no server has that name
    """
    configuration = Configuration(Path(), os.environ, is_lenient=True)
    if agent is None:
        known = known_servers(configuration, agents_here(Path(), os.environ))
        for each in configuration.faulty_servers:
            if each.name == name:
                raise InvalidSettings(str(each.file), each.faults)
    else:
        filed = FoundAgentFile(agent, "user", agent=agent_in(agent))
        known = known_servers(configuration, (filed,))
        known = tuple(each for each in known if each.file is not None)
    server = server_named(name, known).server

    offer = await _fetch_offer(server)
    show_result(_data(offer), _offer_lines(offer), as_json=as_json)


async def _fetch_offer(server: McpServer) -> Offer:
    """Connect to `server`, and return the tools that it offers. Raises: McpUnavailable."""
    connection = Connection(server, Vault(os.environ), Path())
    try:
        return await offer_tools(connection)
    finally:
        await connection.close()


def _row(known: Known) -> dict[str, object]:
    return {
        "name": known.server.name,
        "source": known.source,
        "path": None if known.file is None else str(known.file),
        "transport": "http" if known.server.is_remote else "stdio",
        "where": _where(known.server),
        "ok": True,
    }


def _faulty_row(faulty: FaultyServer) -> dict[str, object]:
    return {
        "name": faulty.name,
        "source": SETTINGS,
        "path": str(faulty.file),
        "transport": None,
        "where": None,
        "ok": False,
        "faults": list(faulty.faults),
    }


def _faults(faulty: Sequence[FaultyServer]) -> Iterator[str]:
    style = out_style()
    for each in faulty:
        word = style.paint("faults", "warning")
        yield f"{word}  {safe(each.name)} ({safe(str(each.file))}) cannot be used:"
        for fault in each.faults:
            yield f"    {safe(fault)}"


def _where(server: McpServer) -> str:
    if server.is_remote:
        return server.destination.host
    return server.command or ""


def _table(known: Sequence[Known]) -> Iterator[str]:
    columns = (
        Column("SERVER", "strong"),
        Column("SOURCE"),
        Column("TYPE"),
        Column("WHERE", gives_way=True),
    )
    rows = [
        (
            safe(each.server.name),
            safe(each.source),
            "http" if each.server.is_remote else "a program",
            safe(_where(each.server)),
        )
        for each in known
    ]
    yield from table(columns, rows, width(), out_style())


def _data(offer: Offer) -> dict[str, object]:
    return {
        "name": offer.server,
        "tools": [
            {"name": spec.name, "effect": spec.effect, "approved_as": spec.action}
            for spec in offer.tools
        ],
        "left_out": msgspec.to_builtins(offer.left_out),
    }


def _offer_lines(offer: Offer) -> Iterator[str]:
    style = out_style()
    tools = count_of(len(offer.tools), "tool")
    left = f", {len(offer.left_out)} left out" if offer.left_out else ""
    yield f"{style.paint('ok', 'good')}  {safe(offer.server)} answers: {tools}{left}"
    for spec in offer.tools:
        asked = "runs without approval" if spec.action is None else f"approved as {spec.action}"
        about = one_line(spec.description, max(20, width() - len(spec.name) - len(asked) - 8))
        yield f"  {style.paint(spec.name, 'tool')}  {style.paint(asked, 'faint')}  {safe(about)}"
    for each in offer.left_out:
        yield f"  {style.paint('left out', 'warning')}  {safe(each.tool)}: {safe(each.reason)}"
