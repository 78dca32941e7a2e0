"""JSON-RPC over HTTP: a request that could not be sent gets an error response.

Without an error response, the protocol library would close the whole connection for one unsent
request, and it would be unknown which other requests were sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpcore2
import httpx2

from perdure.bounds.limits import limits
from perdure.egress.bounded_answer import bound_answer
from perdure.egress.http_types import Resolve
from perdure.egress.transport import PinnedTransport, resolve_host
from perdure.errors import EgressDenied, EgressError

NOT_SENT = -32097
"""Error code for a request that was not sent."""


class RpcTransport(PinnedTransport):
    """The pinned transport, with error responses for unsent requests and a response size limit."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            answer = await super().handle_async_request(request)
        except EgressDenied as error:
            return _not_sent(error.reason)
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
            return _not_sent("no connection could be made")
        most = limits().mcp_answer_bytes
        too_long = EgressError(f"the answer is longer than limits.mcp_answer_bytes = {most:,}")
        await bound_answer(answer, most, too_long, EgressError)
        return answer


def _not_sent(reason: str) -> httpx2.Response:
    error = {"code": NOT_SENT, "message": reason}
    return httpx2.Response(502, json={"jsonrpc": "2.0", "id": 0, "error": error})


def rpc_client(
    *,
    headers: Mapping[str, str],
    timeout_s: float,
    is_local_open: bool = False,
    resolve: Resolve = resolve_host,
) -> Any:
    """Return a client for a JSON-RPC library; it follows no redirects, not even to the same host.

    The caller must close the client. Units: `timeout_s` is the limit in seconds for each read and
    write.
    """
    return httpx2.AsyncClient(
        transport=RpcTransport(resolve=resolve, is_local_open=is_local_open),
        headers={"accept-encoding": "identity", **headers},
        follow_redirects=False,
        max_redirects=0,
        trust_env=False,
        timeout=timeout_s,
    )
