"""The pinned transport: a connection goes to an address that was checked, or it is not made.

A name is resolved once, every address it has is checked, and the connection is made to those very
addresses; nobody resolves it again. TLS still checks the certificate against the name. There is no
proxy, no setting of the environment, and no socket in the file system. `pinned_client` is for
libraries that want a client of their own (an MCP server's, an embedder's).
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
"""Addresses of one name that are tried, one after the other."""


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """The addresses of `host`, as this machine resolves names."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[4][0]) for address in found]


class PinnedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to checked addresses only."""

    def __init__(self, resolve: Resolve, *, is_local_open: bool) -> None:
        self._resolve = resolve
        self._is_local_open = is_local_open
        # The library's own type of it is empty where trio is not installed.
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
        """Every address of `host`, each once, all of them checked.

        Raises: EgressDenied when any is not open, or there is none.
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
    """The transport of a client whose every connection is pinned.

    Raises from a request: EgressDenied where it must not go; what `httpcore2` raises.
    """

    def __init__(
        self,
        *,
        resolve: Resolve = resolve_host,
        is_local_open: bool = False,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._is_local_open = is_local_open
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=trust or _usual_trust(),
            network_backend=PinnedBackend(resolve, is_local_open=is_local_open),
            max_keepalive_connections=0,  # every request resolves and checks anew
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
    """Whose certificates are believed: read once, since it takes 20 ms and clients are many."""
    return httpx2.create_ssl_context(trust_env=False)


def pinned_client(
    *,
    resolve: Resolve = resolve_host,
    is_local_open: bool = False,
    trust: ssl.SSLContext | None = None,
    timeout_s: float = TIMEOUT_S,
) -> httpx2.AsyncClient:
    """A client that goes through the pinned transport, follows nothing and trusts no environment.

    The caller closes it. Units: `timeout_s` seconds, for each read and write.
    """
    transport = PinnedTransport(resolve=resolve, is_local_open=is_local_open, trust=trust)
    return httpx2.AsyncClient(
        transport=transport, follow_redirects=False, trust_env=False, timeout=timeout_s
    )
