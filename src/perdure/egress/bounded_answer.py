"""Limit the size of an answer as it is read, and reject a compressed answer.

The limit counts the bytes from the network. Decompressed data could be much larger, so a compressed
answer is rejected.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import httpx2


async def bound_answer(
    answer: httpx2.Response, most: int, too_long: Exception, refuse: Callable[[str], Exception]
) -> None:
    """Let `answer` raise `too_long` after `most` bytes.

    `refuse` makes an error from a reason.
    Raises: the error that `refuse` makes, if `answer` is compressed.
    """
    coding = answer.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        await answer.aclose()
        raise refuse(f"the answer is compressed ({coding!r:.40}), which was not asked for")
    stream = answer.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    answer.stream = _Bounded(stream, most, too_long)


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, most: int, too_long: Exception) -> None:
        self._stream = stream
        self._left = most
        self._too_long = too_long

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._left -= len(piece)
            if self._left < 0:
                raise self._too_long
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
