"""The pinned transport: connections go only to checked addresses.

A name is resolved once, all its addresses are checked, and the connection uses only these
addresses. TLS still checks the certificate against the host's name. Proxies, environment settings
and Unix sockets are not used. `pinned_client` is for libraries that need an HTTP client of their
own, such as those of MCP servers and embedders.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from functools import cache
from typing import Any, cast

import httpcore2
import httpx2

from perdure.egress.addresses import is_open
from perdure.egress.destinations import require_host
from perdure.egress.http_types import TIMEOUT_S, Resolve
from perdure.errors import EgressDenied

MAX_TRIED = 4
"""Maximum number of addresses of one name that are tried, one after the other."""


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """Return the addresses of `host`, resolved by the operating system."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[4][0]) for address in found]


class PinnedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to checked addresses only."""

    def __init__(self, resolve: Resolve, *, is_local_open: bool) -> None:
        self._resolve = resolve
        self._is_local_open = is_local_open
        # The library's own type of it is empty if trio is not installed.
        self._backend = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature of httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        addresses = await self._addresses(host, port)
        failure: Exception = httpcore2.ConnectError("no address answered")
        for address in addresses[:MAX_TRIED]:
            try:
                return await self._backend.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature of httpcore's
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        raise EgressDenied("requests go to the network only")

    async def sleep(self, seconds: float) -> None:
        await self._backend.sleep(seconds)

    async def _addresses(self, host: str, port: int) -> list[str]:
        """Return the distinct addresses of `host`, after checking all of them.

        Raises: EgressDenied if an address is not open; ``httpcore2.ConnectError`` if there is no
        address.
        """
        name = host.strip("[]")
        require_host(name, is_local_open=self._is_local_open)
        if is_open(name, is_local_open=self._is_local_open):
            return [name]
        try:
            answers = await self._resolve(name, port)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError("the host has no address") from error
        if not answers:
            raise httpcore2.ConnectError("the host has no address")
        if not all(is_open(address, is_local_open=self._is_local_open) for address in answers):
            raise EgressDenied("the host has an address that is not on the public internet")
        return list(dict.fromkeys(answers))


class _Stream(httpx2.AsyncByteStream):
    def __init__(self, stream: AsyncIterable[bytes]) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            yield piece

    async def aclose(self) -> None:
        close = getattr(self._stream, "aclose", None)
        if close is not None:
            await close()


class PinnedTransport(httpx2.AsyncBaseTransport):
    """An HTTP transport whose connections go only to checked addresses.

    A request raises EgressDenied for a forbidden destination, or an error of `httpcore2`.
    """

    def __init__(self, *, resolve: Resolve = resolve_host, is_local_open: bool = False) -> None:
        self._is_local_open = is_local_open
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=_usual_trust(),
            network_backend=PinnedBackend(resolve, is_local_open=is_local_open),
            max_keepalive_connections=0,  # every request resolves and checks again
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        if url.scheme != "https" and not (url.scheme == "http" and self._is_local_open):
            raise EgressDenied("only https is allowed")
        if url.userinfo:
            raise EgressDenied("a URL with a user name or password is not allowed")
        sent = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(
                scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        answer = await self._pool.handle_async_request(sent)
        return httpx2.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_Stream(cast("AsyncIterable[bytes]", answer.stream)),
            extensions=cast("dict[str, Any]", answer.extensions),
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


@cache
def _usual_trust() -> ssl.SSLContext:
    """Return the trusted certificates; they are loaded only once, because loading takes 20 ms."""
    return httpx2.create_ssl_context(trust_env=False)


def pinned_client(
    *,
    resolve: Resolve = resolve_host,
    is_local_open: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> httpx2.AsyncClient:
    """Return a client with the pinned transport; it ignores redirects and the environment.

    The caller must close the client. Units: `timeout_s` is the limit in seconds for each read and
    write.
    """
    transport = PinnedTransport(resolve=resolve, is_local_open=is_local_open)
    return httpx2.AsyncClient(
        transport=transport, follow_redirects=False, trust_env=False, timeout=timeout_s
    )
