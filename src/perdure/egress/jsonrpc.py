"""Asking a server that answers in JSON-RPC: a request that never left is an answer that says so.

The library that speaks the protocol ends a whole connection when one request of it cannot be sent,
and then nobody knows which of the others had been.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpcore2
import httpx2

from perdure.bounds.limits import limits
from perdure.egress.http_types import Resolve
from perdure.egress.transport import PinnedTransport, resolve_host
from perdure.errors import EgressDenied, EgressError

NOT_SENT = -32097
"""Code of the answer that stands for a request which never left."""


class RpcTransport(PinnedTransport):
    """The pinned transport, with answers for what could not be sent, and none without an end."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            answer = await super().handle_async_request(request)
        except EgressDenied as error:
            return _not_sent(error.reason)
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
            return _not_sent("no connection could be made")
        stream = answer.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        coding = answer.headers.get("content-encoding", "identity").strip().lower()
        if coding != "identity":
            # What is decompressed has no end that could be seen on the wire.
            await answer.aclose()
            raise EgressError(f"the answer is compressed ({coding!r:.40}), which was not asked for")
        answer.stream = _Bounded(stream)
        return answer


def _not_sent(reason: str) -> httpx2.Response:
    error = {"code": NOT_SENT, "message": reason}
    return httpx2.Response(502, json={"jsonrpc": "2.0", "id": 0, "error": error})


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream
        self._most = self._left = limits().mcp_answer_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._left -= len(piece)
            if self._left < 0:
                raise EgressError(
                    f"the answer is longer than limits.mcp_answer_bytes = {self._most:,}"
                )
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


def rpc_client(
    *,
    headers: Mapping[str, str],
    timeout_s: float,
    is_local_open: bool = False,
    resolve: Resolve = resolve_host,
) -> Any:
    """A client for a library that speaks JSON-RPC over HTTP; follows nothing, not even at home.

    The caller closes it. Units: `timeout_s` seconds, for each read and write.
    """
    return httpx2.AsyncClient(
        transport=RpcTransport(resolve=resolve, is_local_open=is_local_open),
        headers={"accept-encoding": "identity", **headers},
        follow_redirects=False,
        max_redirects=0,
        trust_env=False,
        timeout=timeout_s,
    )
