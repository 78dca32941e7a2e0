"""HTTP requests and responses as values that need no HTTP library."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from perdure.egress.destinations import Destination

TIMEOUT_S = 30.0
MAX_ANSWER_BYTES = 1024 * 1024

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a host name, with a port, to its addresses."""


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request.

    Units: `timeout_s` is the total time in seconds; the size limit is in bytes of the response
    body.
    Shape: a model's headers were filtered by `sendable`; perdure's own headers, such as the
    authorization, were not filtered. `is_local_open` allows the local network; set it only for an
    address from the configuration.
    """

    destination: Destination
    method: str = "GET"
    headers: Mapping[str, str] = {}
    body: bytes | None = None
    timeout_s: float = TIMEOUT_S
    max_answer_bytes: int = MAX_ANSWER_BYTES
    is_local_open: bool = False


class HttpResponse(msgspec.Struct, frozen=True):
    """The response; redirects are not followed.

    Shape: `headers` have lower-case names; repeated headers are joined by commas. `is_cut` is true
    if `body` is only the beginning of the response's body.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_cut: bool = False


Fetch = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""Makes one request. Raises: EgressError."""


async def fetch_pinned(asked: HttpRequest) -> HttpResponse:
    """Send a request with ``egress.fetch``, whose HTTP library is loaded at the first request."""
    return await importlib.import_module("perdure.egress.fetch").fetch(asked)
