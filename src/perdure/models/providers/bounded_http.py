"""The answers of providers within limits: how long one may be, and that none is compressed.

What is compressed has no end that could be seen on the wire; so it is not asked for, and refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import httpx2

from perdure.bounds.limits import limits
from perdure.errors import LimitExceeded


class CompressedAnswer(httpx2.DecodingError):
    """A provider's answer is compressed although that was not asked for."""


async def ask_uncompressed(request: httpx2.Request) -> None:
    """Say in `request` that its answer must not be compressed."""
    request.headers["accept-encoding"] = "identity"


async def bound_answer(response: httpx2.Response) -> None:
    """Refuse `response` if it is compressed, and stop reading it at the limit."""
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        await response.aclose()
        raise CompressedAnswer(
            f"the answer is compressed ({coding!r:.40}), which was not asked for"
        )
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    response.stream = _Bounded(stream)


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream
        self._most = self._left = limits().model_answer_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._left -= len(piece)
            if self._left < 0:
                raise httpx2.DecodingError(
                    str(LimitExceeded("the answer", "model_answer_bytes", self._most))
                )
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


HOOKS = cast(
    "dict[str, list[Callable[..., Awaitable[Any]]]]",
    {"request": [ask_uncompressed], "response": [bound_answer]},
)
"""For the client of a provider's library."""
