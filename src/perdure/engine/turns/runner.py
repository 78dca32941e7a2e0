"""Run a turn: append the machine's decision, perform the effect that it waits for, and repeat.

The runner itself decides nothing. Each step is one commit, which fails if the head has moved since
the step was computed. If other writers appended entries after the step was computed, the runner
folds these entries into its state and computes the step again. The runner stops when its lease is
lost. An outcome that arrives after the loss of the lease is logged as a ``late_outcome``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Awaitable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import msgspec

from perdure.bounds.callbacks import run_guarded
from perdure.engine.episodes import with_episode
from perdure.engine.turns.co_commit import CoCommit, CommitParticipant
from perdure.engine.turns.config import TurnConfig
from perdure.engine.turns.effects import CallModel, Effect, RunTool, Wait, effect_of
from perdure.engine.turns.environment import Environment, RequestSettings
from perdure.engine.turns.executor.answer_wait import answer_wait
from perdure.engine.turns.executor.model_call import AnswerCall, key_renewed
from perdure.engine.turns.executor.open_tools import OpenTools
from perdure.engine.turns.executor.summary import summarise, tell_compacted
from perdure.engine.turns.executor.tool_call import bound_now
from perdure.engine.turns.inputs import (
    Aborted,
    Answered,
    Begin,
    Broken,
    CallFailed,
    Input,
    Lost,
    Summarised,
    ToolReturned,
    Waited,
    Woken,
)
from perdure.engine.turns.lease import LeaseHolder
from perdure.engine.turns.machine import Step, step
from perdure.engine.turns.observer import Happened
from perdure.engine.turns.rules.budget import money_left, summary_counted
from perdure.engine.turns.rules.scribe import Unexamined
from perdure.engine.turns.state import OpenCall, Phase, TurnState, fold, provider_of
from perdure.engine.windows import LONG, FollowedWindow
from perdure.errors import (
    CredentialsRefused,
    HeadConflict,
    InvalidEntry,
    InvalidTransition,
    LeaseLost,
    ModelRefused,
    SessionError,
    StoreBehind,
    StoreError,
)
from perdure.events.scope import within
from perdure.secrets.mask import log_failure
from perdure.session.codec import encode, new_side
from perdure.session.ledger import Delegated, LateOutcome, TurnStarted
from perdure.session.messages import Message, TextPart
from perdure.session.notes import SessionEnded
from perdure.stores.access.cancellation import finished
from perdure.stores.protocol import Commit, Write
from perdure.stores.validation import named_contents
from perdure.tools.approval import Bound

T = TypeVar("T")

_log = logging.getLogger(__name__)

# Before Python 3.13, a TaskGroup whose child fails while it waits leaves its task with one
# `cancelling` too many.
_HAS_STRAY_COUNTS = sys.version_info < (3, 13)


class StopRequest:
    """A request of the owner to end a turn.

    `is_asked` is True if a stop was requested. `has_cut` is True if the stop request cancelled an
    effect that had not ended.
    """

    def __init__(self) -> None:
        self.is_asked = False
        self.is_cancel = False
        self.has_cut = False
        self._performing: asyncio.Task[Any] | None = None
        self._cuts = 0

    def ask(self, *, is_cancel: bool = False) -> None:
        """End the turn as soon as its effect can be cancelled.

        If `is_cancel` is True, the turn ends as cancelled.
        """
        self.is_asked = True
        self.is_cancel = self.is_cancel or is_cancel
        if self._performing is not None and self._performing.cancel():
            self.has_cut = True
            self._cuts += 1

    async def uncut(self, effect: Awaitable[T]) -> T | None:
        """Return the outcome of `effect`; None if a stop request cancelled it.

        The turn's task performs the effect. If this task is cancelled only to stop the effect,
        `uncut` catches the cancellation.
        Raises: CancelledError if the turn itself is cancelled.
        """
        task = asyncio.current_task()
        assert task is not None
        happened, before = None, task.cancelling()
        self._performing = task
        try:
            happened = await effect
        except (asyncio.CancelledError, Exception):
            if not self.has_cut:
                raise
        finally:
            self._performing = None
        if self._cuts:
            await self._uncancel(task)
        if task.cancelling() > before:
            raise asyncio.CancelledError  # the effect was cancelled, and may still have an outcome
        return None if self.has_cut else happened

    async def _uncancel(self, task: asyncio.Task[Any]) -> None:
        """Undo those cancellations of the turn's task `task` that stopped the effect."""
        while self._cuts:
            self._cuts -= 1
            task.uncancel()
        # A cancellation requested while the task ran is raised only at its next wait.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)


class TurnRunner:
    """Runs one turn to its end under a lease held by the caller.

    After a call of `stopping.ask`, no new effect begins. The turn ends as soon as the open effect
    can be cancelled. If the effect already has an outcome when the turn stops, this outcome is
    written to the log, unless it is a failure. `branch` receives every entry of the turn;
    `companion` adds entries to the commits of the turn.
    """

    def __init__(
        self,
        environment: Environment,
        leadership: LeaseHolder,
        config: TurnConfig,
        settings: RequestSettings,
        stopping: StopRequest,
        *,
        branch: FollowedWindow,
        companion: CommitParticipant | None = None,
    ) -> None:
        self._environment = environment
        self._leadership = leadership
        self._config = config
        self._settings = settings
        self._stopping = stopping
        self._branch, self._companion = branch, companion
        self._answer_call: AnswerCall | None = None
        self._tools = OpenTools(environment, config, lambda: stopping.is_asked)
        self._summary_call: int | None = None
        """The number of the summary call for which the hooks have already run."""
        self.failure = Failure()

    async def begin(self, state: TurnState, begin: Begin) -> TurnState:
        """Begin the turn in a session with the state `state`; return the new state.

        Raises: HeadConflict if another writer has appended entries after `state`. Also raises the
        errors of `run`.
        """
        with within(session=self._environment.stream, turn=begin.number):
            return await self._commit_step(state, begin)

    async def run(self, state: TurnState, happened: Begin | Lost) -> TurnState:
        """Run a turn from `state` to its end: a turn that just began, or a dead process's turn.

        Raises: LeaseLost if another process took over the session; StoreBehind if the store lost
        entries of the turn; StoreError if the store fails; the errors that `companion` raises.
        """
        environment = self._environment
        watched = environment.observer.turn(self._config, state, happened)
        with within(session=environment.stream, turn=state.number), watched as ended:
            try:
                if isinstance(happened, Lost):
                    state = await self._record(state, happened)
                state = await self._run(state)
            finally:
                await self._tools.stop()
            ended(state)
        return state

    async def _run(self, state: TurnState) -> TurnState:
        while (effect := effect_of(state)) is not None:
            self._environment.cooldowns.learn(state.parked)
            await self._leadership.ensure()
            try:
                with _observed(self._environment, self._config, effect) as came:
                    happened = await self._outcome_of(effect, state)
                    came(happened)
                is_cancelled = await _is_cut(self._environment, effect)
                if isinstance(happened, Woken):
                    state = await self._caught_up(state)
                state = await finished(self._record(state, happened))
            finally:
                self._environment.bus.close_call(self._environment.stream, _seq_of(effect))
            if is_cancelled:
                raise asyncio.CancelledError
            await tell_compacted(self._environment, happened)
        return state

    # ------------------------------------------------------------ appending

    async def _record(self, state: TurnState, happened: Input) -> TurnState:
        while True:
            try:
                return await self._commit_step(state, happened)
            except HeadConflict as conflict:
                is_own = conflict.stream == self._environment.stream  # not its flow's log
                if is_own and conflict.actual < state.head:
                    at = (conflict.stream, state.head, conflict.actual)
                    raise StoreBehind(self._environment.store.address, *at) from conflict
                state = await self._caught_up(state)
            except InvalidEntry as error:
                if isinstance(happened, Broken):
                    raise
                happened = self.failure.broken(error)
            except LeaseLost as error:
                await self._keep_late(state, happened, error)
                raise

    async def _commit_step(self, state: TurnState, happened: Input) -> TurnState:
        environment = self._environment
        at = environment.clock.now_ms()
        decided = await self._decide(state, happened, at)
        if not decided.entries:
            return decided.state
        companion = self._companion
        beside = CoCommit() if companion is None else await companion.beside(decided.entries)
        entries = (*decided.entries, *beside.notes)
        entries = await with_episode(environment.store, environment.stream, state.head, entries, at)
        write = Write(stream=environment.stream, entries=entries, expected_head=state.head)
        blobs = (*named_contents(_contents(happened), write.entries), *beside.blobs)
        commit = Commit(writes=(write, *beside.writes), at=at, blobs=blobs)
        is_last = decided.state.phase is Phase.FINISHED
        committed = await self._leadership.commit(commit, is_last=is_last)
        if any(new.kind == SessionEnded.kind for new in entries):
            environment.on_session_end()
        if companion is not None:
            companion.committed(committed.entries[1:])
        appended = committed.entries[0]
        self._branch.follow(appended)
        # The state already includes what the step decided.
        return fold(decided.state, appended[len(decided.entries) :])

    async def _decide(self, state: TurnState, happened: Input, at: int) -> Step:
        """Return the step after `happened`.

        If the step needs facts to which an approval is bound, these facts are read first.
        """
        bounds: dict[int, Bound] = {}
        while True:
            try:
                if isinstance(happened, Begin) and _is_long(happened.message):
                    return await asyncio.to_thread(step, state, happened, self._config, at, bounds)
                return step(state, happened, self._config, at, bounds)
            except Unexamined as lacking:
                found = await bound_now(self._environment, lacking.call, self._config.agent)
                bounds[lacking.place] = found
            except InvalidTransition:
                raise
            except Exception as error:
                if isinstance(happened, Begin | Broken):
                    raise
                happened = self.failure.broken(error)

    async def _caught_up(self, state: TurnState) -> TurnState:
        environment = self._environment
        entries = await environment.store.entries(environment.stream, after=state.head)
        self._branch.follow(entries)
        return fold(state, entries)

    async def _keep_late(self, state: TurnState, happened: Input, lost: LeaseLost) -> None:
        if not isinstance(happened, Answered | Summarised | ToolReturned):
            return
        if not await self._is_turn_there(state):
            return  # the session was erased: its id may belong to another session now
        environment = self._environment
        contents = _contents(happened)
        if contents:
            happened = msgspec.structs.replace(happened, contents=())
        late = LateOutcome(epoch=lost.epoch, outcome=msgspec.Raw(encode(happened)))
        write = Write(stream=environment.stream, entries=(new_side(late),))
        at = environment.clock.now_ms()
        blobs = named_contents(contents, write.entries)
        await environment.store.commit(Commit(writes=(write,), at=at, blobs=blobs))

    async def _is_turn_there(self, state: TurnState) -> bool:
        store, before = self._environment.store, state.turn_seq - 1
        found = await store.entries(self._environment.stream, after=before, limit=1)
        return [(each.kind, each.at) for each in found] == [(TurnStarted.kind, state.started_at)]

    # ------------------------------------------------------------ effects

    async def _outcome_of(self, effect: Effect, state: TurnState) -> Input:
        """Perform `effect`, unless the turn is aborted before or during the effect.

        Raises: the errors of the store and of the session. Any other error ends the turn as broken.
        """
        try:
            return self.failure.after(await self._run_effect(effect, state))
        except (StoreError, SessionError):
            raise
        except Exception as error:  # noqa: BLE001 - a turn that stays open would block the session
            return self.failure.broken(error)

    async def _run_effect(self, effect: Effect, state: TurnState) -> Input:
        self._answer_call = None
        if self._stopping.is_asked:
            return await self._abort(effect)
        happened = await self._stopping.uncut(run_guarded(self._perform(effect, state)))
        if happened is None:
            return await self._abort(effect)
        # A connection error during a requested stop is no outage.
        is_broken_off = isinstance(happened, CallFailed) and self._stopping.is_asked
        return await self._abort(effect) if is_broken_off else happened

    async def _abort(self, effect: Effect) -> Aborted:
        returned = await self._tools.stop()
        call, is_cancel = self._answer_call, self._stopping.is_cancel
        if call is None:
            below = await self._delegated_session(effect)
            return Aborted(is_cancel=is_cancel, delegated=below, returned=returned)
        partial = call.partial()
        usage, is_estimated = call.usage(partial)
        return Aborted(partial, usage, is_estimated, is_cancel=is_cancel)

    async def _delegated_session(self, effect: Effect) -> Delegated | None:
        """Return the session that the stopped tool had opened, and the spending in it."""
        below = self._environment.delegation
        if below is None or not isinstance(effect, RunTool):
            return None
        return await below.find_delegated(effect.tool.started.idempotency_key)

    def _perform(self, effect: Effect, state: TurnState) -> Awaitable[Input]:
        if isinstance(effect, CallModel):
            calling = self._call(effect.call, state)
            # A client may use such a group. Tools always run in their own task.
            return asyncio.ensure_future(calling) if _HAS_STRAY_COUNTS else calling
        if isinstance(effect, RunTool):
            return self._tools.run(effect)
        if isinstance(effect, Wait):
            return self._wait(effect.until)
        assert state.question is not None  # the effect was derived from it
        return answer_wait(self._environment, state.question, state.head)

    async def _call(self, call: OpenCall, state: TurnState) -> Input:
        if call.purpose == "summary":
            reason = "overflow" if state.last_error == "context_overflow" else "threshold"
            is_asked, self._summary_call = self._summary_call == call.call, call.call
            shared = (self._environment, self._config, reason, self._settings.size)
            left = money_left(self._config, state.spent, state.limit_microcents)
            outcome = await summarise(*shared, is_asked=is_asked, left_microcents=left)
            return summary_counted(outcome, call.model, call.tokens_estimated, self._config)
        given = (self._environment, self._leadership, self._config, self._settings, call)
        self._answer_call = AnswerCall(*given, branch=self._branch, turn=state)
        happened = await self._answer_call.outcome()
        if isinstance(happened, CallFailed) and isinstance(happened.error, CredentialsRefused):
            provider = provider_of(call.model)
            if provider not in state.renewed:  # once a turn
                is_renewed = await key_renewed(self._environment.renew_credentials, provider)
                return msgspec.structs.replace(happened, is_renewed=is_renewed)
        return happened

    async def _wait(self, until: int) -> Input:
        clock = self._environment.clock
        await clock.sleep((until - clock.now_ms()) / 1000)
        return Waited()


def _seq_of(effect: Effect) -> int:
    """Return the seq of the intent that `effect` carries out; -1 if it has no intent."""
    if isinstance(effect, CallModel):
        return effect.call.seq
    return effect.tool.seq if isinstance(effect, RunTool) else -1


async def _is_cut(environment: Environment, effect: Effect) -> bool:
    """Flush the live events of `effect`; return whether the turn was cancelled during the flush.

    If the turn was cancelled, the outcome of the effect is recorded before the turn stops, because
    the effect might have cost money.
    """
    try:
        await environment.bus.settle(environment.stream, _seq_of(effect))
    except asyncio.CancelledError:
        return True
    return False


def _observed(
    environment: Environment, config: TurnConfig, effect: Effect
) -> AbstractContextManager[Happened]:
    """Observe `effect`, unless it is a tool run, which `OpenTools` observes."""
    if isinstance(effect, RunTool):
        return nullcontext(lambda _: None)
    return environment.observer.effect(config, effect)


class Failure:
    """Keeps the error of a turn's newest effect in `cause`; None if the effect did not fail."""

    def __init__(self) -> None:
        self.cause: Exception | None = None

    def after(self, happened: Input) -> Input:
        """Return `happened`; if a model call failed, store its error in `cause`.

        If the error states that the provider is not set up, `cause` stays None, because the message
        of this error already gives the complete reason.
        """
        self.cause = None
        if isinstance(happened, CallFailed):
            error = happened.error
            # What a provider raised may contain the key.
            error.__cause__, error.__suppress_context__ = None, True
            is_set_up = not isinstance(error, ModelRefused) or error.status is not None
            self.cause = error if is_set_up else None
        return happened

    def broken(self, error: Exception) -> Broken:
        """Log an unexpected error, and return the input that ends the turn because of it."""
        self.cause = error
        log_failure(_log, error, "a turn was ended by an unexpected error")
        told = f"unexpected error ({type(error).__name__}); the program's log has its traceback"
        return Broken(told)


def _is_long(message: Message) -> bool:
    """Return whether encoding `message` would block the event loop."""
    return sum(len(part.text) for part in message.parts if isinstance(part, TextPart)) > LONG


def _contents(happened: Input) -> tuple[bytes, ...]:
    """Return the bytes of the blobs that the entries of `happened` refer to."""
    if isinstance(happened, Aborted):
        return tuple(content for each in happened.returned.values() for content in each.contents)
    return happened.contents if isinstance(happened, Begin | Answered | ToolReturned) else ()
