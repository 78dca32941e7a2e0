"""Call functions of the program; anything they raise becomes an ordinary error.

A callback may raise CancelledError without being cancelled, or an exception that is not an
`Exception`. Either would otherwise look like a stopped turn, and leave it open.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


class CallbackFailed(Exception):
    """A callback raised a non-`Exception`, or a cancellation that was not requested."""


async def run_guarded(work: Awaitable[T]) -> T:
    """Await `work` of a callback.

    KeyboardInterrupt and SystemExit propagate in the main thread, where a signal may have raised
    them.
    Raises: CancelledError if the calling task is cancelled; CallbackFailed; any error of `work`.
    """
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        return await work
    except Exception:
        raise
    except BaseException as error:
        is_asked = task is not None and task.cancelling() > before
        if (isinstance(error, asyncio.CancelledError) and is_asked) or _ends_program(error):
            raise
        raise CallbackFailed(_failure_text(error)) from error


def run_plain_callback(callback: Callable[..., T], *arguments: object) -> T:
    """Call the plain function `callback`. Raises: as `run_guarded`, but no CancelledError."""
    try:
        return callback(*arguments)
    except Exception:
        raise
    except BaseException as error:
        if _ends_program(error):
            raise
        raise CallbackFailed(_failure_text(error)) from error


async def run_callback(callback: Callable[..., Any], *arguments: object) -> Any:
    """Call `callback`, a plain or an async function. Raises: as `run_guarded`."""

    async def work() -> Any:
        given: object = callback(*arguments)
        return await given if inspect.isawaitable(given) else given

    return await run_guarded(work())


def _ends_program(error: BaseException) -> bool:
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and isinstance(error, KeyboardInterrupt | SystemExit)


def _failure_text(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError):
        return "it was cancelled from inside"
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an error that cannot be printed is still one
        text = ""
    name = type(error).__name__
    return f"it raised {name}: {text}" if text else f"it raised {name}"
