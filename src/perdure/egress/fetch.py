"""One outgoing request, with limits on its time and on the size of the response.

This module imports the HTTP library. Callers that might never send a request import this module
only at their first request.
"""

from __future__ import annotations

import asyncio
import ssl

import httpcore2
import httpx2

from perdure.egress.http_types import HttpRequest, HttpResponse, Resolve
from perdure.egress.transport import pinned_client, resolve_host
from perdure.errors import EgressError


async def fetch(asked: HttpRequest, *, resolve: Resolve = resolve_host) -> HttpResponse:
    """Send a request, and read the response up to the size limit; do not follow redirects.

    Raises: EgressDenied before anything is sent; EgressError if no response came. No error message
    of this function contains the destination.
    """
    client = pinned_client(
        resolve=resolve, is_local_open=asked.is_local_open, timeout_s=asked.timeout_s
    )
    try:
        async with asyncio.timeout(asked.timeout_s), client:
            return await _exchanged(client, asked)
    except TimeoutError:
        raise EgressError(f"no answer within {asked.timeout_s:g} s") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, *_FAILURES) as error:
        raise EgressError(_failure_reason(error)) from None


_FAILURES = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.TimeoutException,
    httpcore2.UnsupportedProtocol,
    OSError,
)


async def _exchanged(client: httpx2.AsyncClient, asked: HttpRequest) -> HttpResponse:
    given = {name.lower(): value for name, value in asked.headers.items()}
    headers = {"accept": "*/*", "user-agent": "perdure", **given}
    request = client.build_request(
        asked.method,
        asked.destination.url,
        headers={**headers, "accept-encoding": "identity"},
        content=asked.body,
    )
    answer = await client.send(request, stream=True)
    try:
        body = bytearray()
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > asked.max_answer_bytes:
                break
    finally:
        await answer.aclose()
    kept = bytes(body[: asked.max_answer_bytes])
    found = {name.lower(): value for name, value in answer.headers.items()}
    return HttpResponse(answer.status_code, found, kept, is_cut=len(body) > len(kept))


def _failure_reason(error: Exception) -> str:
    """Return the reason why no response came, without the address."""
    if isinstance(error, httpcore2.TimeoutException):
        return "the server did not answer in time"
    if isinstance(error, httpcore2.ConnectError):
        reason = error.__cause__ or error.__context__
        if isinstance(reason, ssl.SSLError):
            return "the server's certificate is not trusted"
        return "no connection could be made"
    return "the answer could not be read"
