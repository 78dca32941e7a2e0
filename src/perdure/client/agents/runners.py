"""Runners run turns and flows, in this process or in other processes that take queued work.

A `Runner` receives the object that runs a session's turns, and a message. Every runner writes the
turn to the log; `TurnState` is computed from the entries of the turn.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from perdure.client.requests.due_turn import store_request, turn_when_due
from perdure.client.requests.keyed_turn import keyed_turn
from perdure.client.requests.led_turn import continue_or_follow
from perdure.engine.turns.environment import Environment
from perdure.engine.turns.requests import closing_entry
from perdure.engine.turns.session_turns import Follow, SessionTurns, Signals
from perdure.engine.turns.state import TurnState
from perdure.errors import ConfigError, InvalidTransition
from perdure.session.flows.kinds import FlowRequested
from perdure.session.ids import StreamId
from perdure.session.ledger import Priority, TurnRequested
from perdure.session.messages import Message
from perdure.stores.session_store import SessionStore

if TYPE_CHECKING:
    from perdure.client.agents.agent import Agent

RunnerName = Literal["embedded", "workers"]
"""Where turns run.

``embedded`` means in this process, ``workers`` means in processes of `perdure worker`.
"""

RUNNER = "PERDURE_RUNNER"
"""The environment variable that names the runner of runtimes without the argument `runner`."""

_QUEUED = "perdure.client.cluster.runner"


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A message that begins a turn; `contents` are the bytes of the media in the message.

    `follow` reads the session's entries up to a given seq, and applies their settings. `record`
    stores the workspace changes of a message before the message is stored. For a message with a
    key, `record_keyed` stores the workspace changes after the message is stored. The turn does not
    begin before the time `due_at`. Among waiting turns, those with a higher `priority` begin first.
    A message with the same `key` as an earlier message counts as the same message. Units: Unix
    milliseconds.
    """

    message: Message
    contents: tuple[bytes, ...]
    follow: Follow
    record: Callable[[], Awaitable[None]]
    due_at: int | None = None
    priority: Priority = "normal"
    key: str | None = None

    async def record_keyed(self, environment: Environment, request: int) -> None:
        """Call `record` for a message with a key, unless the turn of the message has begun before.

        Durable: all changes are stored when this returns.
        """
        if self.key is None:
            return
        if await closing_entry(environment.store, environment.stream, request) is None:
            await self.record()


class Runner(Protocol):
    """Runs the turns of sessions, or lets other processes run them."""

    def require(self, store: SessionStore) -> None:
        """Raises: ConfigError if turns of `store` cannot run with this runner."""
        ...

    async def new_turn(self, turns: SessionTurns, new: NewTurn, signals: Signals) -> TurnState:
        """Return the state of the turn that `new` begins, after the turn has ended.

        Raises: the errors of `SessionTurns.new_turn`; the errors of `room`, before anything is
        written.
        """
        ...

    def room(self, store: SessionStore) -> AbstractAsyncContextManager[None]:
        """Return a context manager that reserves a place in the queue for one turn in `store`.

        The first turn that is requested inside the ``with`` block uses the reserved place, so a
        session can be created before its turn.
        Raises: QueueFull on entry, if the namespace already has the maximum number of waiting
        turns.
        """
        ...

    async def lost_turn(
        self, turns: SessionTurns, signals: Signals, turn: int | None = None
    ) -> TurnState:
        """Run or follow the session's open turn to its end, and return the state after its end.

        `turn` is the seq of the turn, if the caller knows it; the turn might already have ended.
        Raises: the errors of `SessionTurns.lost_turn`.
        """
        ...

    async def request_flow(
        self,
        store: SessionStore,
        flow: StreamId,
        wanted: FlowRequested,
        agents: Iterable[Agent],
        at: int,
    ) -> int | None:
        """Store the request `wanted` for workers to complete `flow`, which can also use `agents`.

        An equal open request is not stored again. Returns the seq of the open request. If flows run
        in this process, no request is stored and the result is None. Durable: the request is stored
        on return.
        Units: `at` is Unix milliseconds.
        """
        ...


_ANSWERED: ContextVar[tuple[StreamId, int] | None] = ContextVar("answered", default=None)


@contextmanager
def answering(stream: StreamId, request: int) -> Generator[None]:
    """Inside this ``with`` block, a message to `stream` begins the turn that `request` requested.

    Shape: `request` is the seq of the request.
    """
    token = _ANSWERED.set((stream, request))
    try:
        yield
    finally:
        _ANSWERED.reset(token)


class EmbeddedRunner:
    """Runs turns in this process.

    The log is the only record of the turns that run in this process.
    """

    def require(self, store: SessionStore) -> None:
        """Accept every store, because all turns run in this process."""

    async def new_turn(self, turns: SessionTurns, new: NewTurn, signals: Signals) -> TurnState:
        environment = turns.environment
        if new.key is None:
            await new.record()
        answered, _ = _ANSWERED.get(), _ANSWERED.set(None)  # only for this turn
        request = answered[1] if answered and answered[0] == environment.stream else None

        async def begin(request: int | None) -> TurnState:
            return await turns.new_turn(
                new.message, new.contents, signals, new.follow, request=request
            )

        if new.due_at is None and new.key is None:
            return await begin(request)
        body = TurnRequested(new.message, new.due_at, new.priority)
        request = await store_request(environment, body, new.contents, new.key)
        signals.is_stored()
        await new.record_keyed(environment, request)
        if new.due_at is None:
            return await keyed_turn(turns, signals, request, begin)
        return await turn_when_due(environment, signals, request, new.due_at, begin)

    def room(self, store: SessionStore) -> AbstractAsyncContextManager[None]:
        """Return a context manager that does nothing, because the turns wait for no workers."""
        return nullcontext()

    async def request_flow(
        self,
        store: SessionStore,
        flow: StreamId,
        wanted: FlowRequested,
        agents: Iterable[Agent],
        at: int,
    ) -> int | None:
        """Return None, because the caller runs the flow."""

    async def lost_turn(
        self, turns: SessionTurns, signals: Signals, turn: int | None = None
    ) -> TurnState:
        """Continue the session's open turn here; if another process runs the turn, follow it."""
        environment = turns.environment
        state = await environment.store.state(environment.stream)
        turn = state.open_turn if turn is None else turn
        if turn is None:
            raise InvalidTransition("idle", "recover")
        return await continue_or_follow(turns, signals, turn)


def runner_of(name: RunnerName | None, environ: Mapping[str, str] = os.environ) -> Runner:
    """Return the runner `name`; the default is in $PERDURE_RUNNER, or else it is ``embedded``.

    Raises: ConfigError if the environment names an unknown runner.
    """
    chosen = name or environ.get(RUNNER) or "embedded"
    if chosen not in get_args(RunnerName):
        known = " or ".join(get_args(RunnerName))
        raise ConfigError(f"unknown runner {chosen!r} in ${RUNNER}: use {known}")
    if chosen == "embedded":
        return EmbeddedRunner()
    module: Any = importlib.import_module(_QUEUED)
    return module.DbosRunner()
