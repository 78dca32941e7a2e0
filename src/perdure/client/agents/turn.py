"""The handle of one turn: await it, or iterate over its events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn

import msgspec

from perdure.bounds.short_repr import ShortRepr
from perdure.client.reads import OpenQuestion
from perdure.client.watch import Watch
from perdure.engine.turns.environment import PersonWaits
from perdure.engine.turns.session_turns import Signals
from perdure.engine.turns.state import TurnState
from perdure.errors import LeaseHeld, TurnFailed, TurnSuspended, Waiting
from perdure.errors.engine import failure_of
from perdure.events.types import AnyEvent, Event
from perdure.session.ids import EntryId, StreamId
from perdure.session.ledger import TurnEnd
from perdure.session.messages import Message, Usage
from perdure.tools.output import Output, OutputT

OVER = ("session:turn_completed", "session:cancelled")
"""The types of the events that end a turn."""

REFUSED = "session:turn_refused"
"""Event type for a rejected request; such a request has no turn and no other event."""


class Reply(ShortRepr, Generic[OutputT], frozen=True):
    """How a turn ended. `message` is the last answer of the model, or None if there was no answer.

    After an abort, `message` is the partial answer. If `entry_id` is None, the message is not on
    the branch (see `Agent.on_interrupt`). `output` is the value of the answer, of the type
    `Agent.output`. `output` is None if the agent declares no output type, if the turn was aborted,
    and if the turn ended the session.
    Units: `usage` sums all model calls of the turn.
    """

    end: TurnEnd
    message: Message | None
    entry_id: EntryId | None
    usage: Usage
    turn: int
    output: OutputT | None = None

    @property
    def text(self) -> str:
        """The text of the answer, or "" if there is no answer."""
        return self.message.text if self.message is not None else ""


WhileWaiting = Literal["wait", "raise"]
"""What an ``await`` of the turn does while the turn waits for a person."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Reports whether one session waits for a person; `questions` returns its open questions.

    `head` returns the seq of the newest entry of the session.
    """

    session: StreamId
    all: PersonWaits
    questions: Callable[[], Awaitable[list[OpenQuestion]]]
    head: Callable[[], Awaitable[int]]

    @property
    def is_waiting(self) -> bool:
        """Whether the session waits for a person now."""
        return self.all.is_waiting(self.session)


TurnWork = Callable[[Signals], Coroutine[Any, Any, TurnState]]
"""A function that runs the turn."""

_TASKS: set[asyncio.Task[TurnState]] = set()
"""The tasks of running turns: Python may delete a waiting task that nothing else refers to."""


_CUT_OFF = {
    True: "the event loop ended during a turn of session %s: Runtime.resume continues it",
    False: "the event loop ended before the message to session %s was stored: await the turn, or "
    "use `async with perdure.Runtime(...)`, which waits for it",
}
"""Log lines for a turn that still runs when the event loop ends.

The key states whether the turn's message is stored.

The lines are logged as information: Python would print a warning on stderr, where nothing may be
printed.
"""

_log = logging.getLogger(__name__)


class Turn(Generic[OutputT]):
    """A running or ended turn.

    ``await turn`` returns the `Reply` of the turn, or raises TurnFailed, or TurnSuspended if the
    turn was stopped in this process. ``async for event in turn`` yields the events of the turn from
    its beginning; you can iterate any number of times. The last event comes after the turn has
    ended, so the chat is idle when the loop ends. If `while_waiting` is "raise", ``await`` and
    ``async for`` raise Waiting while the turn waits for a person; the loop first yields all events
    so far. The turn continues even if you leave the loop or never enter it. While a turn runs, it
    is in the set `running`.
    """

    def __init__(
        self,
        work: TurnWork,
        watch: Callable[[int], Watch],
        running: set[Turn[Any]] | None = None,
        waits: Waits | None = None,
        signals: Signals | None = None,
        *,
        while_waiting: WhileWaiting = "wait",
        output: Output | None = None,
        is_scheduled: bool = False,
    ) -> None:
        self._watch = watch
        self._waits = waits
        self._while_waiting = while_waiting
        self._output = output
        self._is_scheduled = is_scheduled
        self._is_stopped = False
        self._signals = signals or Signals()
        self._task = asyncio.ensure_future(work(self._signals))
        _TASKS.add(self._task)
        self._task.add_done_callback(_TASKS.discard)
        self._task.add_done_callback(self._settle)
        if running is not None:
            running.add(self)
            self._task.add_done_callback(lambda _: running.discard(self))

    def __repr__(self) -> str:
        session = "" if self._waits is None else f" session={self._waits.session!r}"
        state = "waiting" if self.is_waiting else "running" if self.is_running else "ended"
        return f"<Turn{session} {state}>"

    @property
    def is_running(self) -> bool:
        """Whether the turn has not ended yet."""
        return not self._task.done()

    @property
    def is_waiting(self) -> bool:
        """Whether the turn, or an agent that it invoked, waits for a person's answer."""
        return self.is_running and self._waits is not None and self._waits.is_waiting

    @property
    def is_scheduled(self) -> bool:
        """Whether the turn has not begun because it is not due yet (``send(at=)``)."""
        return self._is_scheduled and self.is_running and not self._signals.begun.done()

    @property
    def held(self) -> LeaseHeld | None:
        """The error that names the other process that runs the turn.

        None if no other process runs the turn. This process follows the turn that the other process
        runs: you can await it and iterate over its durable events, but you cannot abort it. If the
        process that runs the turn dies, the turn continues in this process.
        """
        return self._signals.held if self.is_running else None

    def __await__(self) -> Generator[Any, None, Reply[OutputT]]:
        return self._reply().__await__()

    if not TYPE_CHECKING:  # a type checker would take every name for an attribute

        def __getattr__(self, name: str) -> NoReturn:
            told = f"'Turn' object has no attribute {name!r}"
            if name in ("text", *Reply.__struct_fields__):
                told += f"; its reply has: (await turn).{name}"
                told += f", in perdure.blocking turn.result().{name}"
            raise AttributeError(told, name=name, obj=self)

    async def __aiter__(self) -> AsyncGenerator[AnyEvent]:
        before = await asyncio.shield(self._signals.begun)
        async with aclosing(self._watch(before)) as watch:
            async for event in self._until_over(watch):
                is_entry = isinstance(event, Event) and event.seq == before + 1
                is_refused = is_entry and event.type == REFUSED
                if is_refused:
                    await self.settled()
                yield event
                if is_refused:
                    return

    async def started(self) -> None:
        """Wait until this process has the lease of the turn's session.

        Raises: LeaseHeld if another process has the lease; TurnOpen; TurnSuspended.
        """
        begun = self._signals.begun
        await asyncio.wait((begun, self._task), return_when=asyncio.FIRST_COMPLETED)
        if begun.done() and not begun.cancelled():
            begun.result()
        else:
            self._result()

    async def stored(self) -> None:
        """Wait until the turn is durable: it has begun, or its request is in the log.

        Raises: TurnSuspended if the turn was suspended; the error of a failed turn.
        """
        await asyncio.wait((self._signals.stored, self._task), return_when=asyncio.FIRST_COMPLETED)
        if not self._signals.stored.done():
            self._result()

    def abort(self) -> None:
        """Abort the turn at the next point where it can be cancelled.

        Does nothing after the end of the turn.
        """
        self._signals.stop()

    def cancel(self) -> None:
        """Abort the turn because its chat is being closed."""
        self._signals.stop(is_cancel=True)

    @property
    def is_cancelled(self) -> bool:
        """Whether the turn was ended because its chat was closed."""
        ended = self._task.done() and not self._task.cancelled() and self._task.exception() is None
        finished = self._task.result().finished if ended else None
        return finished is not None and finished.end == "cancelled"

    async def settled(self) -> None:
        """Wait until the turn has ended, successfully or not."""
        await asyncio.wait((self._task,))

    async def stop(self) -> None:
        """Stop running the turn in this process.

        The turn stays open in the log and can be resumed.
        """
        self._is_stopped = True
        self._task.cancel()
        await self.settled()

    async def _reply(self) -> Reply[OutputT]:
        await self._moved_on()
        state = self._result()
        finished = state.finished
        assert finished is not None
        if finished.failure is not None and finished.end == "error":
            failure = failure_of(finished.failure, "internal")
            raise TurnFailed(finished.error or failure, failure) from self._signals.cause
        usage = finished.usage or Usage()
        if state.partial is not None:
            cut = msgspec.structs.replace(state.partial, stop_reason="aborted")
            return Reply(finished.end, cut, None, usage, state.number)
        output = self._value(state, finished.end)
        return Reply(finished.end, state.answer, state.answer_id, usage, state.number, output)

    def _value(self, state: TurnState, end: TurnEnd) -> OutputT | None:
        """Return the value of the answer; None if the agent does not require a value."""
        if self._output is None or end != "stop" or state.answer is None or state.ends_session:
            return None
        return self._output.value(state.answer.text)

    async def _moved_on(
        self, watch: Watch | None = None, following: asyncio.Task[AnyEvent] | None = None
    ) -> None:
        """Wait until the turn has ended, or until `following` has the next event of `watch`.

        Raises: Waiting if the turn waits for a person, `watch` has yielded all events, and
        `while_waiting` is "raise".
        """
        ends = (self._task,) if following is None else (self._task, following)
        waits = self._waits if self._while_waiting == "raise" else None
        while waits is not None and not any(end.done() for end in ends):
            change = waits.all.change()
            try:
                await self._check_waiting(waits, watch)
                await asyncio.wait((*ends, change), return_when=asyncio.FIRST_COMPLETED)
            finally:
                change.cancel()
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)

    async def _check_waiting(self, waits: Waits, watch: Watch | None) -> None:
        """Raises: Waiting if the turn waits for a person, and `watch` has yielded all events."""
        asked = await waits.questions() if self.is_waiting else []
        has_more = bool(asked) and watch is not None and watch.cursor.after < await waits.head()
        if asked and self.is_waiting and not has_more:
            raise Waiting(*asked)

    async def _until_over(self, watch: Watch) -> AsyncIterator[AnyEvent]:
        """Yield the events of `watch` up to the turn's end. Raises: the error of the turn."""
        while True:
            following = asyncio.ensure_future(anext(watch))
            try:
                await self._moved_on(watch, following)
                if not following.done() and self._task.done():
                    self._result()
                event = await following
            except StopAsyncIteration:  # the store was closed, which stops the turn
                await self.settled()
                self._result()
                return
            finally:
                following.cancel()
                await asyncio.wait((following,))
            is_over = isinstance(event, Event) and event.type in OVER
            if is_over:
                await self.settled()  # the log has the end before the turn has ended
            yield event
            if is_over:
                return

    def _settle(self, task: asyncio.Task[TurnState]) -> None:
        # Retrieve the error: asyncio warns otherwise if the turn is not awaited. The log has it.
        error = TurnSuspended() if task.cancelled() else task.exception()
        begun = self._signals.begun
        if task.cancelled() and not self._is_stopped:
            is_stored = begun.done() or self._signals.stored.done()
            session = "" if self._waits is None else self._waits.session
            _log.info(_CUT_OFF[is_stored], session)
        if begun.done():
            return
        if error is None:
            begun.cancel()
        else:
            begun.set_exception(error)
            begun.exception()

    def _result(self) -> TurnState:
        """Return the state of the ended turn. Raises: TurnSuspended; the error of a failed turn."""
        if self._task.cancelled():
            raise TurnSuspended
        return self._task.result()
