"""Configure the turns of a session, and run each turn from its lease to its end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import cast, get_args

import msgspec

from perdure.context.incremental.conversation import Conversation
from perdure.context.incremental.prompt import prompt_of
from perdure.engine.switches import Switches
from perdure.engine.turns.co_commit import CommitParticipant
from perdure.engine.turns.config import TurnConfig
from perdure.engine.turns.environment import Environment, RequestSettings, Scales
from perdure.engine.turns.inputs import Begin
from perdure.engine.turns.lease import LeaseHolder, leading
from perdure.engine.turns.recovery import IdleState, Recollection, lost_effect, open_turn
from perdure.engine.turns.requests import require_open
from perdure.engine.turns.runner import StopRequest, TurnRunner
from perdure.engine.turns.state import TurnState
from perdure.errors import HeadConflict, InvalidTransition, LeaseHeld, StoreBehind, TurnOpen
from perdure.models.protocol import ThinkingLevel
from perdure.session.codec import body_of
from perdure.session.fold import BranchState
from perdure.session.kinds import ModelChange, ThinkingChange
from perdure.session.ledger import History
from perdure.session.memory.kinds import ContextRecalled
from perdure.session.messages import Message


class Signals:
    """Signals between a turn and its caller. Create a `Signals` object inside a running event loop.

    `begun` resolves when the turn has the lease; its value is the seq after which the turn's events
    begin. `stored` resolves when the turn cannot be lost any more, because it began or the request
    for it is in the log. `stopping` requests the end of the turn. `companion` adds entries to the
    commits of the turn. If the caller only follows the turn, `held` or `leader` is set; `held`
    names another process that runs the turn, and `leader` is a lease holder in this process that
    runs the turn. `cause` is the error with which the turn failed in this process.
    """

    def __init__(self, companion: CommitParticipant | None = None) -> None:
        self.companion = companion
        self.begun: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stopping = StopRequest()
        self.held: LeaseHeld | None = None
        self.leader: LeaseHolder | None = None
        self.cause: Exception | None = None
        self.on_begin: Callable[[], None] = lambda: None

    def begins_after(self, seq: int) -> None:
        """Signal that the turn has the lease; the events of the turn come after the seq `seq`."""
        if self.begun.done():
            return  # it was followed, and is continued here
        self.begun.set_result(seq)
        self.on_begin()
        self.is_stored()

    def stop(self, *, is_cancel: bool = False) -> None:
        """Request the end of the turn, even if another chat of this process runs the turn."""
        self.stopping.ask(is_cancel=is_cancel)
        if self.leader is not None:
            self.leader.stop(is_cancel=is_cancel)

    def is_stored(self) -> None:
        """Signal that the turn cannot be lost any more."""
        if not self.stored.done():
            self.stored.set_result(None)


@dataclass(frozen=True, slots=True)
class Terms:
    """Configuration of the turns of one session, on any of its branches.

    By default, a branch uses the first of `models` and the thinking level of `settings`. A branch
    that was switched to another model or thinking level uses that model or level. The `models`
    after the first are the fallbacks. `config_of` returns the turn configuration for a given model.
    """

    models: tuple[str, ...]
    config_of: Callable[[str], TurnConfig]
    settings: RequestSettings
    history: History = "full"

    def model_on(self, branch: BranchState) -> str:
        """Return the last model that the branch was switched to; by default the session's model."""
        change = branch.model_change
        body = body_of(change) if change is not None else None
        return body.model if isinstance(body, ModelChange) else self.models[0]

    def config_on(self, branch: BranchState) -> TurnConfig:
        """Return the configuration of a turn on the branch."""
        return self.config_of(self.model_on(branch))

    def settings_on(self, branch: BranchState) -> RequestSettings:
        """Return the settings that all requests of a turn on the branch share."""
        change = branch.thinking_change
        body = body_of(change) if change is not None else None
        if isinstance(body, ThinkingChange) and body.level in get_args(ThinkingLevel):
            return replace(self.settings, thinking_level=cast("ThinkingLevel", body.level))
        return self.settings

    def tokens_of(self, conversation: Conversation, scales: Scales) -> int:
        """Estimate the size of a request: history, instructions and tools, but no new message."""
        scale = scales.of(self.model_on(conversation.state))
        prompt = prompt_of(conversation, scale=scale)
        if prompt.is_counted:
            return prompt.tokens  # the count already includes instructions and tools
        return prompt.tokens + math.ceil(self.settings.size * scale)


Follow = Callable[[int], Awaitable[None]]
"""Reads the entries up to the given head, and applies their settings to the session's turns."""


async def _stay(head: int, /) -> None:
    """Do nothing, so that the session keeps the settings of its last turn."""


class SessionTurns:
    """Runs the turns of one session, each under its own lease."""

    def __init__(self, environment: Environment, terms: Terms) -> None:
        self.environment = environment
        self.terms = terms
        self._stream = environment.stream
        self._known = Recollection(environment.store, environment.stream, terms.history)
        self._switches = Switches(environment.store)

    def adopt(self, other: SessionTurns) -> None:
        """Run later turns with the configuration of `other`, which is for the same session."""
        self.environment = other.environment
        self.terms = other.terms

    async def new_turn(
        self,
        message: Message,
        contents: tuple[bytes, ...],
        signals: Signals,
        follow: Follow = _stay,
        *,
        request: int | None = None,
    ) -> TurnState:
        """Run a turn that begins with `message`; `contents` are the media in the message.

        If another writer might have appended entries, `follow` is called first, with the log's
        head. `request` is the seq of the ``turn_requested`` that the turn answers.
        Raises: LeaseHeld if another process runs a turn; TurnOpen if an interrupted turn must be
        resumed first; LeaseLost if another process takes over the session; RequestAnswered if
        `request` is answered, erased or stopped.
        """
        await self._load_models()
        recalled = await self._recall(message)
        claim, stopping = self.environment.claim, signals.stopping
        async with leading(claim, is_begun=False, stopping=stopping) as leadership:
            standing = self._known.standing if request is None else None
            if standing is None and request is None:
                await leadership.take()  # a later message must not begin before this one
            while True:
                # The state after the last turn is current unless another writer has appended.
                at = standing or await self._standing(leadership)
                if standing is None:
                    await follow(at.head)
                await require_open(self.environment.store, self._stream, request, at.page)
                so_far = await self._known.so_far(at.head, at.page)
                inherited = await self._known.branch.settings_at(at.leaf, at.pins)
                settings = await self._switches.in_force(inherited)
                begin = await self._begin(message, contents, at, so_far)
                begin = msgspec.structs.replace(begin, recalled=recalled, request=request)
                runner = self._runner(leadership, settings, signals)
                try:
                    state = await runner.begin(TurnState(self._stream, at.head), begin)
                except HeadConflict:
                    standing = None
                    await leadership.take()
                    continue
                signals.begins_after(at.head + at.has_ended)
                try:
                    self._known.left = await runner.run(state, begin)
                except StoreBehind:
                    self._known.forget()
                    raise
                signals.cause = runner.failure.cause
                return self._known.left

    async def lost_turn(self, signals: Signals, seq: int | None = None) -> TurnState:
        """Resume the turn of a process that died; with `seq`, only the turn that began at `seq`.

        Raises: LeaseHeld if the process of the turn is alive; InvalidTransition if no turn is open,
        or if the open turn began at another seq than `seq`.
        """
        await self._load_models()
        async with leading(self.environment.claim, stopping=signals.stopping) as leadership:
            turn = await open_turn(self.environment.store, self._stream)
            if turn is None or seq not in (None, turn.turn_seq):
                raise InvalidTransition("idle", "recover")
            signals.begins_after(turn.turn_seq - 1)
            self._known.forget()
            settings = await self._switches.in_force(await self._known.branch.settings())
            happened = await lost_effect(self.environment.store, turn)
            runner = self._runner(leadership, settings, signals)
            ended = await runner.run(turn, happened)
            signals.cause = runner.failure.cause
            return ended

    # ------------------------------------------------------------ inside

    async def _begin(
        self, message: Message, contents: tuple[bytes, ...], at: IdleState, so_far: TurnState
    ) -> Begin:
        return Begin(
            message,
            at.turns + 1,
            at.leaf,
            await self._tokens_before(so_far),
            so_far.ran,
            so_far.spent,
            so_far.limit_microcents,
            self._parked(so_far),
            tuple(sorted(so_far.granted)),
            contents,
            is_reopening=at.has_ended,
        )

    async def _load_models(self) -> None:
        """Load the model clients before acquiring the lease, so that loading blocks no process."""
        if self.environment.router is not None:
            await self.environment.router.load(self.terms.models)

    def _parked(self, so_far: TurnState) -> dict[str, int]:
        now = self.environment.clock.now_ms()
        parked = {**so_far.parked, **self.environment.cooldowns.open_at(now)}
        return {name: until for name, until in parked.items() if until > now}

    async def _recall(self, message: Message) -> ContextRecalled | None:
        memory = self.terms.settings.memory
        return None if memory is None else await memory.recall(message.text)

    async def _standing(self, leadership: LeaseHolder) -> IdleState:
        """Return the state of the session. Raises: LeaseHeld or TurnOpen if a turn is open."""
        try:
            return await self._known.idle()
        except TurnOpen:  # the lease tells whether another process runs the turn, or has ended it
            await leadership.take()
            return await self._known.idle()

    async def _tokens_before(self, so_far: TurnState) -> int:
        """Estimate the size of a request without the new message; read the log only if needed."""
        is_known = so_far.finished is not None and self.terms.history == "full"
        if is_known and so_far.context_tokens is not None:
            return so_far.context_tokens
        return self.terms.tokens_of(await self._known.branch.now(), self.environment.scales)

    def _runner(self, leadership: LeaseHolder, branch: BranchState, signals: Signals) -> TurnRunner:
        return TurnRunner(
            self.environment,
            leadership,
            self.terms.config_on(branch),
            self.terms.settings_on(branch),
            signals.stopping,
            branch=self._known.branch,
            companion=signals.companion,
        )
