"""Observers of a running turn, for telemetry. An observer does not change the turn.

Without an observer, perdure makes only two additional function calls per turn and one per effect.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from perdure.engine.turns.config import TurnConfig
from perdure.engine.turns.effects import Effect
from perdure.engine.turns.inputs import Input
from perdure.engine.turns.state import TurnState

TurnEnded = Callable[[TurnState], None]
Happened = Callable[[Input], None]


class Observer(Protocol):
    """Receives turns and effects as they begin and end. An observer raises no errors."""

    def turn(
        self, config: TurnConfig, state: TurnState, happened: Input
    ) -> AbstractContextManager[TurnEnded]:
        """Observe a turn from `state` on.

        The context manager yields a function, to which the caller passes the last state of the
        turn, unless the turn ends with an error.
        """
        ...

    def effect(self, config: TurnConfig, effect: Effect) -> AbstractContextManager[Happened]:
        """Observe one effect. The caller passes the outcome to the function that is yielded."""
        ...


def _ignore(_: object) -> None:
    """Ignore the event."""


NOBODY = nullcontext(_ignore)
"""Observes a turn or an effect, and ignores what it observes."""


class Silence:
    """The observer that does nothing."""

    def turn(
        self, config: TurnConfig, state: TurnState, happened: Input
    ) -> AbstractContextManager[TurnEnded]:
        return NOBODY

    def effect(self, config: TurnConfig, effect: Effect) -> AbstractContextManager[Happened]:
        return NOBODY


SILENCE: Observer = Silence()
