"""Running a session's turns: what a turn runs under, from agent, branch and environment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast, get_args

import msgspec

from perdure.client.agents.agent import Agent
from perdure.client.agents.turn import Signals
from perdure.context.branch_summary import (
    branch_files,
    branch_summary_request,
    branch_summary_text,
)
from perdure.context.growing.conversation import Conversation, conversation_of
from perdure.context.growing.prompt import prompt_of
from perdure.context.tokens import estimate_request, unscaled_around
from perdure.engine.branching import branch_told, entries_left
from perdure.engine.turns.config import Budget, Judge, Limits, Link, ToolFacts, TurnConfig
from perdure.engine.turns.environment import Environment, RequestSettings
from perdure.engine.turns.inputs import Begin, CallFailed, NothingToSummarise, Summarised
from perdure.engine.turns.leading import Leadership, leading
from perdure.engine.turns.performing.summarising import summarised, tell_compacted
from perdure.engine.turns.recovery import Recollection, Standing, carried, lost, open_turn
from perdure.engine.turns.rules.spending import (
    SummaryOutcome,
    answer_usage,
    overrun_of,
    overrun_text,
    summary_counted,
)
from perdure.engine.turns.runner import TurnRunner
from perdure.engine.turns.state import TurnState
from perdure.engine.windows import pinned_window
from perdure.errors import HeadConflict, InvalidTransition, ModelError, TurnFailed, TurnOpen
from perdure.models.prices import Cost
from perdure.models.protocol import ModelRequest, ThinkingLevel, ToolDeclaration
from perdure.session.codec import body_of, new_side, new_tree
from perdure.session.entries import Entry, NewEntry
from perdure.session.fold import BranchState, ContextWindow
from perdure.session.ids import EntryId
from perdure.session.kinds import BranchSummary, ModelChange, ThinkingChange
from perdure.session.ledger import CompactingReason, ModelCalled, ModelFinished, Spending
from perdure.session.messages import Message
from perdure.session.notes import SessionReopened, SideBody
from perdure.stores.protocol import Commit, Lease, StreamState, Write

BRANCH_TOKENS = 32_000
"""How much of a branch is shown for its summary where the model's window is not known."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a session's turns run under besides its agent: caps of today, prices, permissions."""

    limits: Limits
    budget: Budget
    cost: Cost
    judge: Judge


class Running:
    """Runs the turns of one session, each under a lease of its own."""

    def __init__(
        self, agent: Agent, environment: Environment, system_prompt: str | None, terms: Terms
    ) -> None:
        self.agent = agent
        self.environment = environment
        self._stream = environment.stream
        self._system_prompt = system_prompt
        self._terms = terms
        self._known = Recollection(environment.store, environment.stream, agent.history)
        self._settings = _settings(agent, environment, system_prompt)

    async def new_turn(
        self, message: Message, contents: tuple[bytes, ...], signals: Signals
    ) -> TurnState:
        """Run the turn that `message`, whose media name `contents`, begins.

        Raises: LeaseHeld; TurnOpen when an interrupted turn has to be resumed first; LeaseLost.
        """
        async with leading(self.environment.claim, is_begun=False) as leadership:
            standing = self._known.standing
            if standing is None:
                await leadership.take()
            while True:
                # Where it stood after the last turn is right unless somebody else has appended.
                at = standing or await self._standing()
                so_far = await self._known.so_far(at.head)
                settings = await self._known.branch.settings()
                now = self.environment.clock.now_ms()
                parked = {**so_far.parked, **self.environment.cooldowns.open_at(now)}
                begin = Begin(
                    message,
                    at.turns + 1,
                    at.leaf,
                    await self._tokens_before(so_far),
                    so_far.spent,
                    so_far.limit_microcents,
                    {name: until for name, until in parked.items() if until > now},
                    tuple(sorted(so_far.granted)),
                    contents,
                    is_reopening=at.has_ended,
                )
                runner = self._runner(leadership, settings, signals)
                try:
                    state = await runner.begin(TurnState(self._stream, at.head), begin)
                except HeadConflict:
                    if standing is not None:
                        standing = None
                        await leadership.take()
                    continue
                signals.begins_after(at.head + at.has_ended)
                self._known.left = await runner.run(state, begin)
                return self._known.left

    async def lost_turn(self, signals: Signals) -> TurnState:
        """Go on with the turn whose process is gone.

        Raises: LeaseHeld while that process is alive; InvalidTransition when no turn is open.
        """
        async with leading(self.environment.claim) as leadership:
            turn = await open_turn(self.environment.store, self._stream)
            if turn is None:
                raise InvalidTransition("idle", "recover")
            signals.begins_after(turn.turn_seq - 1)
            self._known.forget()
            settings = await self._known.branch.settings()
            happened = await lost(self.environment.store, turn)
            return await self._runner(leadership, settings, signals).run(turn, happened)

    async def compact(self, focus: str | None) -> Entry | None:
        """Summarise what can leave the context now; None when nothing can.

        Raises: LeaseHeld; TurnOpen; TurnFailed when no usable summary came.
        """
        async with leading(self.environment.claim) as leadership:
            window = await self._window(await self._ready(leadership))
            config = self._config(window.state)
            tokens = self._context_tokens(conversation_of(window, self.agent.history))
            intent, spent = await self._summary_called(leadership, config, tokens, "manual")
            outcome = await summarised(
                self.environment, config.model, config.compaction, "manual", focus
            )
            outcome = summary_counted(outcome, config.model, tokens, config)
            closing = _closing(outcome, config, spent)
            added = [new_tree(outcome.compaction)] if isinstance(outcome, Summarised) else []
            appended = await self._append(leadership.lease, *added, new_side(closing, intent.id))
        if isinstance(outcome, CallFailed):
            raise TurnFailed(str(outcome.error), outcome.error.code) from outcome.error
        await tell_compacted(self.environment, outcome)
        return appended[0] if added else None

    async def summarise_branch(
        self, target: EntryId | None, focus: str | None
    ) -> BranchSummary | None:
        """What was said on the branch that is left for `target`; None when nothing was.

        Raises: LeaseHeld; TurnOpen; TurnFailed when no usable summary came.
        """
        async with leading(self.environment.claim) as leadership:
            state = await self._ready(leadership)
            config = self._config((await self._window(state)).state)
            entries = await entries_left(self.environment.store, self._stream, state.leaf, target)
            request = _branch_request(self.environment, entries, config, focus)
            if request is None:
                return None
            tokens = estimate_request(request)
            intent, spent = await self._summary_called(leadership, config, tokens)
            try:
                reply = await branch_told(self.environment, request)
            except ModelError as error:
                failed = CallFailed(error)
                closing = _closing(failed, config, spent)
                await self._append(leadership.lease, new_side(closing, intent.id))
                raise TurnFailed(str(error), error.code) from error
            usage, is_estimated = answer_usage(config.model, tokens, reply, config)
            after = spent.plus(usage)
            closing = ModelFinished(
                "stop",
                usage,
                model=config.model,
                is_estimated=is_estimated,
                spent=after,
                agent=config.agent,
            )
            await self._append(leadership.lease, new_side(closing, intent.id))
        files = branch_files(entries)
        text = branch_summary_text(entries, reply.text)
        return BranchSummary(text, target, tuple(files.read), tuple(files.modified), usage)

    async def spent(self) -> Spending:
        """What the session has spent by the calls in its own log."""
        state = await self.environment.store.state(self._stream)
        return (await carried(self.environment.store, self._stream, state.head)).spent

    async def note(self, body: SideBody) -> None:
        """Write `body` down, unless somebody else has a turn open."""
        store = self.environment.store
        while True:
            state = await store.state(self._stream)
            if state.open_turn is not None:
                return
            write = Write(stream=self._stream, entries=(new_side(body),), expected_head=state.head)
            try:
                await store.commit(Commit(writes=(write,), at=self.environment.clock.now_ms()))
            except HeadConflict:
                continue
            return

    # ------------------------------------------------------------ inside

    async def _summary_called(
        self,
        leadership: Leadership,
        config: TurnConfig,
        tokens: int,
        reason: CompactingReason | None = None,
    ) -> tuple[Entry, Spending]:
        """The intent of a call for a summary, in the log, and what was spent before.

        Raises: TurnFailed where it may cost more than the session is to spend.
        """
        spent = await self.spent()
        called = ModelCalled(
            0,
            config.model,
            purpose="summary",
            tokens_estimated=tokens,
            agent=self.agent.id,
            reason=reason,
        )
        overrun = overrun_of(called, config, spent)
        if overrun is not None and config.budget.on_exceed != "warn":
            raise TurnFailed(overrun_text(config.model, spent, overrun), "budget_exceeded")
        return (await self._append(leadership.lease, new_side(called)))[0], spent

    async def _standing(self) -> Standing:
        state = await self._idle()
        return Standing(
            state.head, state.leaf, state.info.turns, has_ended=state.info.status != "active"
        )

    async def _tokens_before(self, so_far: TurnState) -> int:
        """As `_context_tokens`, but where the last turn left it nothing is looked at again."""
        is_known = so_far.finished is not None and self.agent.history == "full"
        if is_known and so_far.context_tokens is not None:
            return so_far.context_tokens
        return self._context_tokens(await self._known.branch.now())

    def _context_tokens(self, conversation: Conversation) -> int:
        """About how large a request is without new words, instructions and tools included."""
        scale = self.environment.scales.of(_model(conversation.state, self.agent.model))
        prompt = prompt_of(conversation, scale=scale)
        if prompt.is_counted:
            return prompt.tokens  # it was counted with everything around it
        return prompt.tokens + math.ceil(self._settings.size * scale)

    async def _ready(self, leadership: Leadership) -> StreamState:
        """The session's state, open for a summary; one that had ended is opened again."""
        state = await self._idle()
        if state.info.status == "active":
            return state
        await self._append(leadership.lease, new_side(SessionReopened()))
        return await self.environment.store.state(self._stream)

    async def _idle(self) -> StreamState:
        state = await self.environment.store.state(self._stream)
        if state.open_turn is not None:
            raise TurnOpen(self._stream, state.open_turn)
        return state

    def _runner(self, leadership: Leadership, state: BranchState, signals: Signals) -> TurnRunner:
        level = _thinking_level(state, self.agent.thinking_level)
        return TurnRunner(
            self.environment,
            leadership,
            self._config(state),
            replace(self._settings, thinking_level=level),
            signals.stopping,
            branch=self._known.branch,
            companion=signals.companion,
        )

    def _config(self, state: BranchState) -> TurnConfig:
        return _config(self.agent, self.environment, self._terms, _model(state, self.agent.model))

    async def _window(self, state: StreamState) -> ContextWindow:
        return await pinned_window(self.environment.store, self._stream, state.leaf)

    async def _append(self, lease: Lease, *entries: NewEntry) -> tuple[Entry, ...]:
        write = Write(stream=self._stream, entries=entries, lease=lease)
        commit = Commit(writes=(write,), at=self.environment.clock.now_ms())
        return (await self.environment.store.commit(commit)).entries[0]


def _branch_request(
    environment: Environment, entries: Sequence[Entry], config: TurnConfig, focus: str | None
) -> ModelRequest | None:
    scale = environment.scales.of(config.model)
    budget = BRANCH_TOKENS if config.window_tokens is None else config.window_tokens // 2
    return branch_summary_request(
        entries, config.model, budget_tokens=budget, scale=scale, focus=focus
    )


def _closing(outcome: SummaryOutcome, config: TurnConfig, spent: Spending) -> ModelFinished:
    if isinstance(outcome, NothingToSummarise):
        reason = "nothing can leave the context"
        closing = ModelFinished(error=reason, error_code="nothing_to_compact")
    elif isinstance(outcome, Summarised):
        closing = ModelFinished("stop", outcome.usage, is_estimated=outcome.is_estimated)
    else:
        closing = ModelFinished(
            usage=outcome.usage,
            error=outcome.error.reason,
            error_code=outcome.error.code,
            is_estimated=outcome.is_estimated,
        )
    after = None if isinstance(outcome, NothingToSummarise) else spent.plus(outcome.usage)
    return msgspec.structs.replace(closing, model=config.model, spent=after, agent=config.agent)


def _settings(agent: Agent, environment: Environment, system: str | None) -> RequestSettings:
    declared = tuple(ToolDeclaration(*tool) for tool in environment.tools.declarations())
    return RequestSettings(
        system=system,
        tools=declared,
        size=unscaled_around(system, declared),
        max_output_tokens=agent.max_output_tokens,
        temperature=agent.temperature,
        max_messages=agent.compaction.max_messages,
    )


def _config(agent: Agent, environment: Environment, terms: Terms, model: str) -> TurnConfig:
    def window_tokens(model: str) -> int | None:
        return environment.models.info(model).context_window

    return TurnConfig(
        agent=agent.id,
        model=model,
        tools={
            spec.name: ToolFacts(spec.effect, spec.on_unknown) for spec in environment.tools.tools
        },
        limits=terms.limits,
        retry=agent.own_retry,
        compaction=agent.compaction,
        on_interrupt=agent.on_interrupt,
        queue_mode=agent.queue_mode,
        window_tokens=window_tokens(model),
        fallbacks=tuple(
            Link(link.model, link.retry, window_tokens(link.model))
            for link in agent.chain[1:]
            if link.model != model
        ),
        restart_on_cut=agent.restart_on_cut,
        budget=terms.budget,
        max_output_tokens=agent.max_output_tokens,
        cost=terms.cost,
        judge=terms.judge,
    )


def _model(state: BranchState, default: str) -> str:
    """The model the branch was last switched to, else the agent's."""
    change = state.model_change
    body = body_of(change) if change is not None else None
    return body.model if isinstance(body, ModelChange) else default


def _thinking_level(state: BranchState, default: ThinkingLevel) -> ThinkingLevel:
    change = state.thinking_change
    body = body_of(change) if change is not None else None
    if isinstance(body, ThinkingChange) and body.level in get_args(ThinkingLevel):
        return cast("ThinkingLevel", body.level)
    return default
