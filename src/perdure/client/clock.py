"""The time, randomness and current folder of the machine; only this module reads them.

All other modules take a `Clock` and a `RandomSource` as arguments, so tests can replace both.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import msgspec

from perdure.errors import WrongArgument
from perdure.session.clock import Clock, RandomSource
from perdure.session.ids import StreamId, generated_stream_id, stream_id
from perdure.stores.access.lazy_modules import Later

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = Later("asyncio")


class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        """Return the Unix time in milliseconds."""
        return time.time_ns() // 1_000_000

    def steady_s(self) -> float:
        """Return the seconds since a fixed moment; the result never decreases."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`; return immediately for zero or less."""
        if seconds > 0:
            await asyncio.sleep(seconds)


def system_random(count: int, /) -> bytes:
    """Return `count` random bytes that nobody can guess."""
    return os.urandom(count)


class Outside(msgspec.Struct, frozen=True):
    """The clock and the random source that `Store` and `Session` use."""

    clock: Clock
    random: RandomSource

    def stream_id(self, chosen: str | None) -> StreamId:
        """Return `chosen` as a stream id, or a new random id that nobody can guess.

        Raises: WrongArgument when `chosen` is not a valid id.
        """
        if chosen is not None:
            return stream_id(chosen)
        return generated_stream_id(self.clock.now_ms(), self.random(10))


def absolute(folder: str | os.PathLike[str] | None) -> str | None:
    """Return `folder` as an absolute path without ``..``; links are not resolved.

    Raises: WrongArgument if `folder` is an empty string.
    """
    if folder is None:
        return None
    if not os.fspath(folder):
        raise WrongArgument(
            'the folder is an empty text: name one ("." is the current one), or leave it out',
            argument="cwd",
            takes="a folder",
        )
    return os.path.abspath(folder)  # noqa: PTH100 - Path.resolve would follow links
