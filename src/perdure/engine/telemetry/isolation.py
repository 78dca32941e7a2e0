"""An observer that cannot disturb a turn: its errors are logged and the turn continues.

A program's own processors, samplers and instruments run inside the observer, and OpenTelemetry does
not catch all of their errors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeVar

from perdure.engine.turns.config import TurnConfig
from perdure.engine.turns.effects import Effect
from perdure.engine.turns.inputs import Input
from perdure.engine.turns.observer import Happened, Observer, TurnEnded
from perdure.engine.turns.state import TurnState

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Isolated:
    """Wraps `observer` and catches the errors that it raises."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer

    def turn(
        self, config: TurnConfig, state: TurnState, happened: Input
    ) -> AbstractContextManager[TurnEnded]:
        """Implements `Observer`."""
        return Guarded[TurnState](lambda: self.observer.turn(config, state, happened))

    def effect(self, config: TurnConfig, effect: Effect) -> AbstractContextManager[Happened]:
        """Implements `Observer`."""
        return Guarded[Input](lambda: self.observer.effect(config, effect))


class Guarded(Generic[T]):
    """Enters and exits the context manager that `make` returns, and logs its errors."""

    def __init__(self, make: Callable[[], AbstractContextManager[Callable[[T], None]]]) -> None:
        self._make = make
        self._inner: AbstractContextManager[Callable[[T], None]] | None = None
        self._told: Callable[[T], Any] | None = None

    def __enter__(self) -> Callable[[T], None]:
        try:
            inner = self._make()
            self._told = inner.__enter__()
            self._inner = inner
        except Exception as error:  # noqa: BLE001 - an observer must not affect the turn
            report(error)
        return self._tell

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._inner is None:
            return
        try:
            self._inner.__exit__(kind, error, trace)
        except Exception as raised:  # noqa: BLE001 - likewise, except for `error` itself
            if raised is not error:
                report(raised)

    def _tell(self, value: T) -> None:
        if self._told is not None:
            attempt(partial(self._told, value), None)


def attempt(make: Callable[[], T], otherwise: T) -> T:
    """Return the result of `make`; if it raises an error, log the error and return `otherwise`."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - programs continue despite any telemetry setup
        report(error)
        return otherwise


def report(error: Exception) -> None:
    """Log that telemetry failed with `error`."""
    _log.warning("OpenTelemetry failed and was passed over (%s)", type(error).__name__)
