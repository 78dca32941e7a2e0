"""The places where turns and flows run: this process, or another one that takes queued work.

A `Runner` receives the turns of one session and a message. Every runner writes the turn to the log;
`TurnState` is the fold of its entries.
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
"""``embedded``: turns run in this process. ``workers``: processes of `perdure worker` run them."""

RUNNER = "PERDURE_RUNNER"
"""The variable that names the runner of runtimes that name none."""

_QUEUED = "perdure.client.cluster.runner"


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A message that begins a turn; `contents` are the media that the message names.

    `follow` applies the settings of the session up to an entry. `record` stores the workspace
    changes of a message before the message. For a message with a key, `record_keyed` stores the
    changes after it. The turn does not begin before `due_at`. Waiting turns of a higher `priority`
    begin before this turn. Another message with the same `key` is the same message. Units: Unix
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
        """Call `record` for a message with a key, unless its turn has begun (a repeated message).

        Durable: when this returns.
        """
        if self.key is None:
            return
        if await closing_entry(environment.store, environment.stream, request) is None:
            await self.record()


class Runner(Protocol):
    """Runs the turns of sessions, or lets other processes run them."""

    def require(self, store: SessionStore) -> None:
        """Raises: ConfigError if turns of `store` cannot run here."""
        ...

    async def new_turn(self, turns: SessionTurns, new: NewTurn, signals: Signals) -> TurnState:
        """Return the state of the turn that `new` begins, once it has ended.

        Raises: as `SessionTurns.new_turn`; the errors of `room`, before anything is written.
        """
        ...

    def room(self, store: SessionStore) -> AbstractAsyncContextManager[None]:
        """Return a context that reserves a place for one waiting turn of a session of `store`.

        The first turn that is requested inside uses the place, so a session can be created before.
        Raises: QueueFull, on entry, if the maximum number of turns of the namespace wait for
        workers.
        """
        ...

    async def lost_turn(
        self, turns: SessionTurns, signals: Signals, turn: int | None = None
    ) -> TurnState:
        """Return the state of the open turn of the session, once it has ended.

        `turn` is the seq of the turn, if known; the turn can have ended since. Raises: as
        `SessionTurns.lost_turn`.
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
        """Request that workers run `flow` to completion, as in `wanted`, and also with `agents`.

        Return the seq of the open request; None if flows run in this process. Durable: on return.
        Units: `at` is Unix milliseconds.
        """
        ...


_ANSWERED: ContextVar[tuple[StreamId, int] | None] = ContextVar("answered", default=None)


@contextmanager
def answering(stream: StreamId, request: int) -> Generator[None]:
    """Let the turn that is sent to `stream` in this context answer the request at seq `request`."""
    token = _ANSWERED.set((stream, request))
    try:
        yield
    finally:
        _ANSWERED.reset(token)


class EmbeddedRunner:
    """Runs turns in this process. The log is the only journal."""

    def require(self, store: SessionStore) -> None:
        """Accept every store: its turns run in this process."""

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
        """Return a context that does nothing: turns of this process wait for no worker."""
        return nullcontext()

    async def request_flow(
        self,
        store: SessionStore,
        flow: StreamId,
        wanted: FlowRequested,
        agents: Iterable[Agent],
        at: int,
    ) -> int | None:
        """Return None: the caller runs the flow."""

    async def lost_turn(
        self, turns: SessionTurns, signals: Signals, turn: int | None = None
    ) -> TurnState:
        """Run the turn, or follow it while another process runs it."""
        environment = turns.environment
        state = await environment.store.state(environment.stream)
        turn = state.open_turn if turn is None else turn
        if turn is None:
            raise InvalidTransition("idle", "recover")
        return await continue_or_follow(turns, signals, turn)


def runner_of(name: RunnerName | None, environ: Mapping[str, str] = os.environ) -> Runner:
    """Return the runner `name`; None: the runner that $PERDURE_RUNNER names, or the embedded one.

    Raises: ConfigError for an unknown name in the environment.
    """
    chosen = name or environ.get(RUNNER) or "embedded"
    if chosen not in get_args(RunnerName):
        known = " or ".join(get_args(RunnerName))
        raise ConfigError(f"unknown runner {chosen!r} in ${RUNNER}: use {known}")
    if chosen == "embedded":
        return EmbeddedRunner()
    module: Any = importlib.import_module(_QUEUED)
    return module.DbosRunner()
