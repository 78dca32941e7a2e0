"""Limit the size of providers' answers and the waits for their bytes; forbid compression.

A limit on bytes from the network does not limit the decompressed size, so perdure requests no
compression and rejects compressed answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import httpx2

from perdure.bounds.limits import limits
from perdure.egress.bounded_answer import bound_answer
from perdure.errors import LimitExceeded


class RejectedAnswer(httpx2.DecodingError):
    """A provider's answer is too long, or compressed although the request did not allow it."""


async def ask_uncompressed(request: httpx2.Request) -> None:
    """Request an uncompressed answer in the headers of `request`."""
    request.headers["accept-encoding"] = "identity"


async def limit_answer(response: httpx2.Response) -> None:
    """Reject `response` if it is compressed, and stop reading `response` at the size limit."""
    most = limits().model_answer_bytes
    too_long = RejectedAnswer(str(LimitExceeded("the answer", "model_answer_bytes", most)))
    await bound_answer(response, most, too_long, RejectedAnswer)


class Patience:
    """The time limits for one call's waits for bytes, and whether the first byte has arrived.

    Units: the limits are seconds.
    """

    def __init__(self, first_byte_s: float, stream_idle_s: float) -> None:
        self._first_byte_s = first_byte_s
        self._stream_idle_s = stream_idle_s
        self._is_answered = False

    @contextmanager
    def in_force(self) -> Generator[None]:
        """Apply the limits to the requests that are sent within the block."""
        token = _patience_of_call.set(self)
        try:
            yield
        finally:
            _patience_of_call.reset(token)

    def read_limit_s(self, *, is_answered: bool) -> float:
        """Return the limit of the next read, and record whether the answer has begun."""
        self._is_answered = is_answered
        return self._stream_idle_s if is_answered else self._first_byte_s

    def timeout_message(self, address: str) -> str:
        """Return the message for a timeout at `address` under the current limit."""
        if self._is_answered:
            limit = f"{self._stream_idle_s:g} s (stream_idle_timeout_s)"
            return f"{address} sent no further byte for {limit}"
        return f"{address} sent no byte for {self._first_byte_s:g} s (first_byte_timeout_s)"


_patience_of_call: ContextVar[Patience | None] = ContextVar("patience_of_call", default=None)


async def limit_first_byte(request: httpx2.Request) -> None:
    """Limit the wait for the answer to `request`."""
    patience = _patience_of_call.get()
    if patience is not None:
        read = patience.read_limit_s(is_answered=False)
        timeout = {**request.extensions.get("timeout", {}), "read": read}
        request.extensions = {**request.extensions, "timeout": timeout}


async def limit_silence(response: httpx2.Response) -> None:
    """Limit each wait for more bytes of `response`."""
    patience = _patience_of_call.get()
    if patience is not None:
        # The transport reads the limit again before it reads the body.
        timeout = response.request.extensions["timeout"]
        timeout["read"] = patience.read_limit_s(is_answered=True)


REQUEST_HOOKS = (ask_uncompressed, limit_first_byte)
RESPONSE_HOOKS = (limit_silence, limit_answer)

HOOKS = cast(
    "dict[str, list[Callable[..., Awaitable[Any]]]]",
    {"request": list(REQUEST_HOOKS), "response": list(RESPONSE_HOOKS)},
)
"""Event hooks for the client of a provider's library."""
