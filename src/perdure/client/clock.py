"""The machine's time, randomness and working folder; no other module asks the machine for them.

Everything else takes a `Clock` and a `RandomSource` as arguments, so that it can run on others.
"""

from __future__ import annotations

import asyncio
import os
import time

import msgspec

from perdure.errors import WrongArgument
from perdure.session.clock import Clock, RandomSource
from perdure.session.ids import StreamId, generated_stream_id, stream_id


class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        return time.time_ns() // 1_000_000

    def steady_s(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Let `seconds` pass; returns at once for zero or less."""
        if seconds > 0:
            await asyncio.sleep(seconds)


def system_random(count: int, /) -> bytes:
    """`count` bytes that nobody can guess."""
    return os.urandom(count)


class Outside(msgspec.Struct, frozen=True):
    """What the handles get from the world besides their store."""

    clock: Clock
    random: RandomSource

    def stream_id(self, chosen: str | None) -> StreamId:
        """`chosen` as a stream id, or a new one that cannot be guessed.

        Raises: ValueError when `chosen` cannot be an id.
        """
        if chosen is not None:
            return stream_id(chosen)
        return generated_stream_id(self.clock.now_ms(), self.random(10))


def absolute(folder: str | os.PathLike[str] | None) -> str | None:
    """`folder` as sessions keep it: absolute, without ``..``, links as they were typed.

    Raises: WrongArgument for an empty text, which names no folder.
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
