"""Rate limits: how many requests and open streams one caller may have.

Each process has its own counters, which start at zero. Requests with a wrong token are not counted,
because tokens are too long to guess.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import msgspec
from litestar.connection import ASGIConnection
from litestar.datastructures import State

from perdure.apps.server.access.tokens import Principal
from perdure.apps.server.problems import Problem

_MINUTE_S = 60.0
_KNOWN = 10_000
"""Maximum number of callers that are remembered; the one idle for longest is forgotten first."""


AnyConnection = ASGIConnection[Any, Any, Any, State]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits for one caller.

    Units: requests are counted per minute; streams are counted while they are open. Each token is
    one caller. The visitors of a page share one token, so for them each pair of token and network
    address is one caller.
    """

    requests: int = 30_000
    streams: int = 1_000
    visitor_requests: int = 120
    visitor_streams: int = 10


class Rates:
    """Counts the requests and streams of a server's callers.

    `steady_s` returns a monotonic time in seconds.
    """

    def __init__(self, limits: Limits, steady_s: Callable[[], float]) -> None:
        self._limits = limits
        self._steady_s = steady_s
        self._spent: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Caller -> number of the caller's requests that still count, and when it was computed."""
        self._streams: Counter[str] = Counter()

    def count(self, principal: Principal, address: str) -> None:
        """Count a request.

        Raises: Problem 429 if the caller exceeds the limit; a rejected request is not counted.
        """
        caller = _caller(principal, address)
        limits = self._limits
        most = limits.visitor_requests if principal.is_visitor else limits.requests
        now, per_s = self._steady_s(), most / _MINUTE_S
        spent, at = self._spent.pop(caller, (0.0, now))
        spent = max(spent - (now - at) * per_s, 0.0)
        is_allowed = spent + 1 <= most
        self._spent[caller] = (spent + is_allowed, now)
        if len(self._spent) > _KNOWN:
            self._spent.popitem(last=False)
        if not is_allowed:
            wait_s = math.ceil((spent + 1 - most) / per_s)
            detail = f"more than {most} requests a minute; try again in {wait_s} s"
            raise Problem(429, "rate_limited", detail, retryAfterS=wait_s)

    def require_stream(self, principal: Principal, address: str) -> None:
        """Raises: Problem 429 if the caller has reached its limit of open streams."""
        limits = self._limits
        most = limits.visitor_streams if principal.is_visitor else limits.streams
        if self._streams[_caller(principal, address)] >= most:
            detail = f"more than {most} open streams; close one first"
            raise Problem(429, "rate_limited", detail, retryAfterS=1)

    @contextmanager
    def stream(self, principal: Principal, address: str) -> Generator[None]:
        """Count a stream while it is open."""
        caller = _caller(principal, address)
        self._streams[caller] += 1
        try:
            yield
        finally:
            self._streams[caller] -= 1
            if not self._streams[caller]:
                del self._streams[caller]


def address_of(connection: AnyConnection) -> str:
    """Return the address that a request came from."""
    return connection.client.host if connection.client else ""


def _caller(principal: Principal, address: str) -> str:
    return f"{principal.token} {address}" if principal.is_visitor else principal.token
