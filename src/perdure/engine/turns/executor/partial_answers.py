"""Store the received part of an answer in the background, without delaying the stream.

Received text is stored after `EVERY_S`, even if no more text arrives. If many bytes (`EVERY_BYTES`
for a short answer) arrive, the text is stored earlier. An answer that is complete before its first
save is never stored in part. Only one save runs at a time. A save writes everything that was
received before the save began, so a slow store only reduces the number of saves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from perdure.session.clock import Clock

EVERY_S = 0.25
EVERY_BYTES = 2048


class PartialStorage:
    """Stores the received part of an answer: calls `put` with the bytes that `arrived` returns."""

    def __init__(
        self,
        clock: Clock,
        arrived: Callable[[], bytes],
        put: Callable[[bytes], Awaitable[None]],
    ) -> None:
        self._clock = clock
        self._arrived = arrived
        self._put = put
        self._unsaved_bytes = 0
        self._every_bytes = EVERY_BYTES
        self._is_putting = False
        self._saving: asyncio.Task[None] | None = None

    def grown(self, by_bytes: int) -> None:
        """Note that the answer has grown by `by_bytes` bytes.

        Raises: the error of an earlier save that failed.
        """
        self._unsaved_bytes += by_bytes
        saving = self._saving
        if saving is not None and saving.done():
            saving.result()
            saving = None
        is_much = self._unsaved_bytes >= self._every_bytes
        if saving is not None and is_much and not self._is_putting:
            saving.cancel()
            saving = None
        if saving is None:
            saving = asyncio.create_task(self._save())
        self._saving = saving

    async def now(self) -> None:
        """Save the received part before the answer is processed further.

        Raises: the error of the save if it failed.
        """
        if self._saving is not None:
            if not self._is_putting:
                self._saving.cancel()
            await _join(self._saving)
            self._saving = None
        await self._put_now()

    async def __aenter__(self) -> PartialStorage:
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _at: object) -> None:
        """Save nothing more. Wait until no save is running.

        The error of a failed save is ignored, because the outcome of the answer is written to the
        same store next, and this write reports its own error.
        """
        saving = self._saving
        if saving is None:
            return
        if error is not None or not self._is_putting:
            saving.cancel()
        if self._is_putting:
            await _join(saving)
        elif saving.done() and not saving.cancelled():
            saving.exception()  # otherwise asyncio reports an exception that was never retrieved

    async def _save(self) -> None:
        while self._unsaved_bytes:
            if self._unsaved_bytes < self._every_bytes:
                await self._clock.sleep(EVERY_S)
            self._is_putting = True
            try:
                await self._put_now()
            finally:
                self._is_putting = False

    async def _put_now(self) -> None:
        content = self._arrived()
        self._unsaved_bytes = 0
        # Each save writes the whole part: the longer it is, the more new text is required.
        self._every_bytes = max(EVERY_BYTES, len(content) // 10)
        await self._put(content)


async def _join(task: asyncio.Task[None]) -> None:
    """Wait until `task` has ended. If the wait is cancelled, cancel `task` and wait for its end."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            task.cancel()
            cancelled = error
    if not task.cancelled():
        task.exception()
    if cancelled is not None:
        raise cancelled
