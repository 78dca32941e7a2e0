"""Call functions of the program, and turn anything that they raise into an ordinary error.

A callback may raise CancelledError without being cancelled, or an exception that is not an
`Exception`. Without this module, a CancelledError or non-`Exception` that a callback raises would
look like a stopped turn, and the turn would stay open.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import signal
import threading
import traceback
from collections.abc import Awaitable, Callable
from types import CodeType
from typing import Any, TypeVar

T = TypeVar("T")


class CallbackFailed(Exception):
    """A callback raised a non-`Exception`, or a cancellation that was not requested."""


async def run_guarded(work: Awaitable[T]) -> T:
    """Await `work`, which is a call of a callback.

    In the main thread, KeyboardInterrupt is raised unchanged, and so is a SystemExit from a signal
    handler. Any other SystemExit becomes an error of the callback; for example, `argparse` raises
    SystemExit if it rejects arguments. If Python closes a coroutine because its event loop was
    closed, GeneratorExit is raised unchanged.
    Raises: CancelledError if the calling task is cancelled; CallbackFailed if the callback raises
    an error that is not an `Exception`; any error of `work`.
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
        if isinstance(error, GeneratorExit) and _current_task() is not task:
            raise
        raise CallbackFailed(_failure_text(error)) from error


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs
        return None


def run_plain_callback(callback: Callable[..., T], *arguments: object) -> T:
    """Call the plain function `callback`.

    Raises: the errors of `run_guarded`, except CancelledError.
    """
    try:
        return callback(*arguments)
    except Exception:
        raise
    except BaseException as error:
        if _ends_program(error):
            raise
        raise CallbackFailed(_failure_text(error)) from error


async def run_callback(callback: Callable[..., Any], *arguments: object) -> Any:
    """Call `callback`, which is a plain or an async function.

    Raises: the errors of `run_guarded`.
    """

    async def work() -> Any:
        given: object = callback(*arguments)
        return await given if inspect.isawaitable(given) else given

    return await run_guarded(work())


def _ends_program(error: BaseException) -> bool:
    if threading.current_thread() is not threading.main_thread():
        return False
    return isinstance(error, KeyboardInterrupt) or (
        isinstance(error, SystemExit) and _is_of_signal(error)
    )


def _is_of_signal(error: SystemExit) -> bool:
    """Whether a signal handler raised `error`."""
    handlers = {_code_of(signal.getsignal(each)) for each in signal.valid_signals()} - {None}
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code in handlers for frame, _ in frames)


def _code_of(handler: object) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    found = getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
    return found if isinstance(found, CodeType) else None


def _failure_text(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError):
        return "it was cancelled from inside"
    return f"it raised {error_text(error)}"


def error_text(error: BaseException) -> str:
    """Return the class and the text of any error, even of one that cannot be printed."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an error that cannot be printed is still one
        text = ""
    name = type(error).__name__
    return f"{name}: {text}" if text else name
