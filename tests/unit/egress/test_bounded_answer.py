from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from perdure.egress.bounded_answer import bound_answer
from perdure.errors import EgressError

TOO_LONG = EgressError("the answer is too long")


class Pieces(httpx2.AsyncByteStream):
    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces
        self.is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece

    async def aclose(self) -> None:
        self.is_closed = True


async def test_answer_up_to_the_limit_is_read_completely() -> None:
    answer = httpx2.Response(200, stream=Pieces(b"ab", b"cd"))
    await bound_answer(answer, 4, TOO_LONG, EgressError)
    assert await answer.aread() == b"abcd"


async def test_answer_above_the_limit_raises_the_given_error() -> None:
    answer = httpx2.Response(200, stream=Pieces(b"ab", b"cd", b"e"))
    await bound_answer(answer, 4, TOO_LONG, EgressError)
    with pytest.raises(EgressError, match="the answer is too long"):
        await answer.aread()


async def test_compressed_answer_is_closed_and_refused() -> None:
    stream = Pieces(b"x")
    answer = httpx2.Response(200, headers={"content-encoding": "gzip"}, stream=stream)
    with pytest.raises(EgressError, match="compressed"):
        await bound_answer(answer, 4, TOO_LONG, EgressError)
    assert stream.is_closed
