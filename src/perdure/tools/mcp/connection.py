"""A connection to one server: it is opened on demand, reopened after a loss, and finally closed.

The protocol library runs in one task from start to end, because it requires that the task that
opens a resource also closes it. Tool calls only wait for answers from the task that runs the
protocol library. If the connection breaks after a call was sent, the call is lost, and perdure
never sends it again. Importing this module loads the package ``mcp``.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
from collections.abc import AsyncGenerator, Awaitable, Mapping
from pathlib import Path
from typing import Any, Self, TextIO, cast

from perdure.bounds.limits import limits
from perdure.errors import (
    EgressDenied,
    EgressError,
    McpUnavailable,
    PerdureError,
    ToolError,
    ToolLost,
    ToolUnavailable,
)
from perdure.errors.advice import install_of
from perdure.secrets.mask import mask_secrets
from perdure.secrets.vault import Taint, Vault
from perdure.tools.mcp.long_lines import LINES_WITHIN, stop_at_long_line
from perdure.tools.mcp.servers import McpServer
from perdure.tools.processes import program_of, small_environment

MAX_PAGES = 100

_LISTED = 20
"""A server's list is read until it has over `_LISTED` times the tools that an agent can have.

The agent may select some of the tools.
"""

_SAID = 500
_FORGOTTEN = "Session terminated"
"""The library's message if the server no longer knows the session, so the call had no effect."""

_BROKEN = "Server returned an error response"
"""The library's message for an HTTP error such as 502; the server may have executed the call."""


class Connection:
    """A connection to an MCP server. The connection is reopened if necessary.

    `secrets` are the secrets sent to the server.
    """

    def __init__(self, server: McpServer, vault: Vault, working_dir: Path) -> None:
        self.server = server
        self.secrets = Taint(vault)
        self._working_dir = Path(server.working_dir or working_dir)
        self._link: _Link | None = None
        self._connecting = asyncio.Lock()

    async def tools(self) -> list[Any]:
        """Return the server's tools, in the library's types.

        Raises: McpUnavailable if the server cannot be reached or its list cannot be used.
        """
        link = await self._linked()
        found: list[Any] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(self.server.connect_timeout_s):
                for _ in range(MAX_PAGES):
                    page = await link.client.list_tools(cursor=cursor)
                    found += page.tools
                    cursor = page.next_cursor
                    if cursor is None or len(found) > _LISTED * limits().mcp_tools:
                        return found
        except PerdureError:
            raise
        except Exception as error:  # noqa: BLE001 - after any library error there are no tools
            raise self._unavailable(error, link) from None
        raise McpUnavailable(self.server.name, f"its list of tools has over {MAX_PAGES} pages")

    async def call(self, tool: str, name: str, args: Mapping[str, object]) -> Any:
        """Call the server's tool `name`, whose name in perdure is `tool`, and return the answer.

        Raises: ToolUnavailable if the call was not sent. Raises ToolLost if the outcome of the call
        is unknown. Raises ToolError if the server rejected the call.
        """
        for is_last in (False, True):
            try:
                link = await self._linked()
            except McpUnavailable as error:
                raise ToolUnavailable(tool, error.reason) from None
            try:
                return await link.client.call_tool(name, dict(args))
            except Exception as error:  # noqa: BLE001 - after any error there is no answer
                if str(error) == _FORGOTTEN and not is_last:
                    await link.end()
                    continue
                raise self._call_error(tool, error, link) from None
        raise AssertionError("the second try returns or raises")

    def lacks(self, tools: list[str]) -> McpUnavailable:
        """Return the error which states that the server lacks the requested `tools`."""
        return McpUnavailable(self.server.name, f"it has no tool {', '.join(tools)}")

    async def close(self) -> None:
        """Close the connection, and stop the server's program if perdure started one."""
        link, self._link = self._link, None
        if link is not None:
            await link.end()

    # ------------------------------------------------------------ inside

    async def _linked(self) -> _Link:
        async with self._connecting:
            if self._link is None or self._link.is_over:
                self._link = await self._connected()
            return self._link

    async def _connected(self) -> _Link:
        try:
            transports = _Transports(self.server, self.secrets, self._working_dir)
        except ImportError:
            reason = f"the package mcp is not installed: {install_of('mcp')}"
            raise McpUnavailable(self.server.name, reason) from None
        except PerdureError as error:
            raise McpUnavailable(self.server.name, _reason(error)) from None
        link = _Link(transports)
        try:
            async with asyncio.timeout(self.server.connect_timeout_s):
                await link.ready()
        except TimeoutError:
            await link.end()
            reason = f"it was not ready within {self.server.connect_timeout_s:g} s"
            raise McpUnavailable(self.server.name, reason + self._output_suffix(link)) from None
        except asyncio.CancelledError:
            await link.end()
            raise
        except Exception as error:  # noqa: BLE001 - after any error there is no connection
            await link.end()
            raise self._unavailable(error, link) from None
        return link

    def _unavailable(self, error: Exception, link: _Link) -> McpUnavailable:
        told = "it did not answer in time" if isinstance(error, TimeoutError) else _reason(error)
        return McpUnavailable(self.server.name, self._clean(told) + self._output_suffix(link))

    def _output_suffix(self, link: _Link) -> str:
        said = link.transports.program_output
        return f" (it said: {self._clean(said)[-_SAID:]})" if said else ""

    def _clean(self, text: str) -> str:
        return mask_secrets(self.secrets.scrub(text))

    def _call_error(self, tool: str, error: Exception, link: _Link) -> ToolError:
        """Convert `error`, with which a call failed, to the error that the caller gets."""
        message = self._clean(_reason(error))
        if not isinstance(error, link.transports.failures):
            return ToolError(tool, f"the answer of its server cannot be used: {message}")
        code = getattr(error, "code", None)
        if code == link.transports.not_sent:
            return ToolUnavailable(tool, message)
        if code in link.transports.lost or message == _BROKEN:
            message = "the server ended while the tool ran" if link.is_over else message
            return ToolLost(tool, f"{message}; it may have taken effect")
        return ToolError(tool, message)


class _Link:
    """One connection to a server; its own task keeps it open until it is closed or lost."""

    def __init__(self, transports: _Transports) -> None:
        self.transports = transports
        self.client: Any = None
        self._over = asyncio.Event()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run())

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    async def ready(self) -> None:
        """Wait until the connection is ready; raise the error if it cannot become ready."""
        await asyncio.shield(self._ready)

    async def end(self) -> None:
        """Close the connection, and stop the server's program."""
        self._over.set()
        if not self._ready.done():
            self._task.cancel()
        await asyncio.wait((self._task,))

    async def _run(self) -> None:
        try:
            async with self.transports.client(self._over) as client:
                self.client = client
                if not self._ready.done():
                    self._ready.set_result(None)
                await self._over.wait()
        except (asyncio.CancelledError, Exception) as error:  # noqa: BLE001 - sent to the waiter
            if not self._ready.done():
                self._ready.set_exception(_first(error))
                self._ready.exception()  # retrieved, in case no task waits for it
        finally:
            self._over.set()
            if not self._ready.done():
                self._ready.cancel()


class _Transports:
    """Opens the transport to one MCP server with the library ``mcp``.

    Raises: ImportError if ``mcp`` is missing.
    """

    def __init__(self, server: McpServer, secrets: Taint, working_dir: Path) -> None:
        self._server = server
        self._secrets = secrets
        self._working_dir = working_dir
        self._client = importlib.import_module("mcp.client.client").Client
        types = importlib.import_module("mcp_types")
        self._implementation = types.Implementation
        self.lost = (None, types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT)
        self.failures: tuple[type[Exception], ...] = (
            importlib.import_module("mcp.shared.exceptions").MCPError,
            importlib.import_module("anyio").ClosedResourceError,
            importlib.import_module("anyio").BrokenResourceError,
        )
        self.not_sent: int = importlib.import_module("perdure.egress.jsonrpc").NOT_SENT
        self._complaints: Complaints | None = None

    @property
    def program_output(self) -> str:
        """Return the last output of the server's program."""
        return self._complaints.text if self._complaints is not None else ""

    @contextlib.asynccontextmanager
    async def client(self, over: asyncio.Event) -> AsyncGenerator[Any]:
        """Open the library's client for the server; set `over` when the server is gone."""
        opened = self._remote() if self._server.is_remote else self._program()
        stop_at_long_line(over.set)
        about = self._implementation(name="perdure", version="1")
        async with opened as transport:
            watched = watched_transport(transport, over)
            async with self._client(watched, client_info=about, cache=None) as client:
                yield client

    @contextlib.asynccontextmanager
    async def _program(self) -> AsyncGenerator[Any]:
        server = self._server
        stdio = importlib.import_module("mcp.client.stdio")
        environment = small_environment(os.environ, self._working_dir)
        given = {name: self._secrets.fill(value) for name, value in server.env.items()}
        parameters = stdio.StdioServerParameters(
            command=program_of(server.command or "", environment["PATH"], server.name),
            args=list(server.args),
            env={**environment, **given},
            cwd=self._working_dir,
            encoding=LINES_WITHIN,
        )
        self._complaints = heard = await complaints()
        try:
            yield stdio.stdio_client(parameters, errlog=heard.stream)
        finally:
            heard.close()

    @contextlib.asynccontextmanager
    async def _remote(self) -> AsyncGenerator[Any]:
        server = self._server
        library = importlib.import_module("mcp.client.streamable_http")
        make = importlib.import_module("perdure.egress.jsonrpc").rpc_client
        headers = {name: self._secrets.fill(value) for name, value in server.headers.items()}
        client = make(
            headers=headers, timeout_s=server.timeout_s, is_local_open=server.allow_local_endpoint
        )
        async with client:
            yield library.streamable_http_client(server.destination.url, http_client=client)


def _first(error: BaseException) -> BaseException:
    """Return the first error inside nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, asyncio.CancelledError):
        return EgressError("the connection broke off while it was made")
    return error


def _reason(error: BaseException) -> str:
    if isinstance(error, EgressDenied | EgressError | ToolError | McpUnavailable):
        return error.reason
    if isinstance(error, OSError):
        return f"it cannot be started ({error.strerror or type(error).__name__})"
    return str(error) or type(error).__name__


KEPT_BYTES = 4096


class Complaints(asyncio.Protocol):
    """Collects the last part of a program's standard error; earlier output is dropped.

    The program writes its standard error to `stream`. The function `complaints` creates a
    `Complaints`, and the caller of the function must close it.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self._kept = b""
        self._transport: asyncio.BaseTransport | None = None

    @property
    def text(self) -> str:
        """Return the program's last output on one line; for a Python traceback, only its error."""
        kept = self._kept.decode(errors="replace")
        if "Traceback (most recent call last)" in kept or '\n  File "' in kept:
            lines = (line.strip(" |+-") for line in reversed(kept.splitlines()))
            kept = next(filter(None, lines), kept)
        return " ".join(kept.split())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._kept = (self._kept + data)[-KEPT_BYTES:]

    def close(self) -> None:
        """Stop reading the program's standard error."""
        self.stream.close()
        if self._transport is not None:
            self._transport.close()


async def complaints() -> Complaints:
    """Open a `Complaints` for a program's standard error."""
    reading, writing = os.pipe()
    found = Complaints(os.fdopen(writing, "w"))
    pipe = os.fdopen(reading, "rb", buffering=0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: found, pipe)
    return found


@contextlib.asynccontextmanager
async def watched_transport(transport: Any, over: asyncio.Event) -> AsyncGenerator[tuple[Any, Any]]:
    """Open a `transport` of the library, and set `over` when the other side has closed."""
    async with transport as (reading, writing):
        yield _Reading(reading, over), writing


class _Reading:
    """Passes on incoming messages, and sets `over` when there are no more."""

    def __init__(self, stream: Any, over: asyncio.Event) -> None:
        self._stream = stream
        self._over = over

    @property
    def last_context(self) -> Any:
        """Return the context of the last message, for the protocol library."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        return await self._next(self._stream.receive())

    async def aclose(self) -> None:
        self._over.set()
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await self._next(self._stream.__anext__())

    async def _next(self, message: Awaitable[Any]) -> Any:
        try:
            return await message
        except BaseException:
            self._over.set()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> bool | None:
        self._over.set()
        return await self._stream.__aexit__(*error)
