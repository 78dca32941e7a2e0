"""Running a session's turns: what a turn runs under, from agent, branch and environment."""

from __future__ import annotations

from typing import cast, get_args

from perdure.client.agents.agent import Agent
from perdure.client.agents.turn import Signals
from perdure.context.build import build_context
from perdure.engine.turns.config import ToolFacts, TurnConfig
from perdure.engine.turns.environment import Environment, RequestSettings
from perdure.engine.turns.inputs import Begin, CallFailed, NothingToSummarise, Summarised
from perdure.engine.turns.leading import Leadership, leading
from perdure.engine.turns.recovery import lost, open_turn
from perdure.engine.turns.runner import TurnRunner
from perdure.engine.turns.state import TurnState
from perdure.engine.turns.summarising import summarised
from perdure.errors import InvalidTransition, TurnFailed, TurnOpen
from perdure.models.protocol import ThinkingLevel
from perdure.session.codec import body_of, new_side, new_tree
from perdure.session.entries import Entry, NewEntry
from perdure.session.fold import ContextWindow
from perdure.session.kinds import ModelChange, ThinkingChange
from perdure.session.ledger import ModelCalled, ModelFinished
from perdure.session.messages import Message
from perdure.session.notes import SessionReopened
from perdure.stores.protocol import Commit, Lease, StreamState, Write


class Running:
    """Runs the turns of one session, each under a lease of its own."""

    def __init__(self, agent: Agent, environment: Environment, system_prompt: str | None) -> None:
        self.agent = agent
        self.environment = environment
        self._stream = environment.stream
        self._system_prompt = system_prompt

    async def new_turn(self, message: Message, signals: Signals) -> TurnState:
        """Run the turn that `message` begins.

        Raises: LeaseHeld; TurnOpen when an interrupted turn has to be resumed first; LeaseLost.
        """
        async with leading(self.environment.claim) as leadership:
            state = await self._ready(leadership)
            signals.begins_after(state.head)
            window = await self._window(state)
            scale = self.environment.scales.of(_model(window, self.agent.model))
            tokens = build_context(window, scale=scale).tokens
            begin = Begin(message, state.info.turns + 1, state.leaf, tokens)
            before = TurnState(stream=self._stream, head=state.head)
            return await self._runner(leadership, window, signals).run(before, begin)

    async def lost_turn(self, signals: Signals) -> TurnState:
        """Go on with the turn whose process is gone.

        Raises: LeaseHeld while that process is alive; InvalidTransition when no turn is open.
        """
        async with leading(self.environment.claim) as leadership:
            turn = await open_turn(self.environment.store, self._stream)
            if turn is None:
                raise InvalidTransition("idle", "recover")
            signals.begins_after(turn.turn_seq - 1)
            window = await self._window()
            happened = await lost(self.environment.store, turn)
            return await self._runner(leadership, window, signals).run(turn, happened)

    async def compact(self, focus: str | None) -> Entry | None:
        """Summarise what can leave the context now; None when nothing can.

        Raises: LeaseHeld; TurnOpen; TurnFailed when no usable summary came.
        """
        async with leading(self.environment.claim) as leadership:
            config = self._config(await self._window(await self._ready(leadership)))
            called = new_side(ModelCalled(call=0, model=config.model, purpose="summary"))
            intent = (await self._append(leadership.lease, called))[0]
            outcome = await summarised(
                self.environment, config.model, config.compaction, "manual", focus
            )
            closing = _closing(outcome)
            added = [new_tree(outcome.compaction)] if isinstance(outcome, Summarised) else []
            appended = await self._append(leadership.lease, *added, new_side(closing, intent.id))
        if isinstance(outcome, CallFailed):
            raise TurnFailed(str(outcome.error), outcome.error.code) from outcome.error
        return appended[0] if added else None

    # ------------------------------------------------------------ inside

    async def _ready(self, leadership: Leadership) -> StreamState:
        """The session's state, open for a turn; one that had ended is opened again."""
        state = await self.environment.store.state(self._stream)
        if state.open_turn is not None:
            raise TurnOpen(self._stream, state.open_turn)
        if state.info.status == "active":
            return state
        await self._append(leadership.lease, new_side(SessionReopened()))
        return await self.environment.store.state(self._stream)

    def _runner(
        self, leadership: Leadership, window: ContextWindow, signals: Signals
    ) -> TurnRunner:
        settings = RequestSettings(
            system=self._system_prompt,
            thinking_level=_thinking_level(window, self.agent.thinking_level),
            max_output_tokens=self.agent.max_output_tokens,
            temperature=self.agent.temperature,
        )
        return TurnRunner(
            self.environment, leadership, self._config(window), settings, signals.aborting
        )

    def _config(self, window: ContextWindow) -> TurnConfig:
        agent = self.agent
        model = _model(window, agent.model)
        facts = {
            spec.name: ToolFacts(spec.effect, spec.on_unknown)
            for spec in self.environment.tools.tools
        }
        return TurnConfig(
            agent=agent.id,
            model=model,
            tools=facts,
            limits=agent.limits,
            retry=agent.retry,
            compaction=agent.compaction,
            on_interrupt=agent.on_interrupt,
            queue_mode=agent.queue_mode,
            window_tokens=self.environment.models.info(model).context_window,
        )

    async def _window(self, state: StreamState | None = None) -> ContextWindow:
        store = self.environment.store
        state = state or await store.state(self._stream)
        return await store.context_window(self._stream, state.leaf)

    async def _append(self, lease: Lease, *entries: NewEntry) -> tuple[Entry, ...]:
        write = Write(stream=self._stream, entries=entries, lease=lease)
        commit = Commit(writes=(write,), at=self.environment.clock.now_ms())
        return (await self.environment.store.commit(commit)).entries[0]


def _closing(outcome: Summarised | NothingToSummarise | CallFailed) -> ModelFinished:
    if isinstance(outcome, Summarised):
        return ModelFinished(stop_reason="stop", usage=outcome.usage)
    if isinstance(outcome, CallFailed):
        return ModelFinished(error=outcome.error.reason, error_code=outcome.error.code)
    return ModelFinished(error="nothing can leave the context", error_code="nothing_to_compact")


def _model(window: ContextWindow, default: str) -> str:
    """The model the branch was last switched to, else the agent's."""
    change = window.state.model_change
    body = body_of(change) if change is not None else None
    return body.model if isinstance(body, ModelChange) else default


def _thinking_level(window: ContextWindow, default: ThinkingLevel) -> ThinkingLevel:
    change = window.state.thinking_change
    body = body_of(change) if change is not None else None
    if isinstance(body, ThinkingChange) and body.level in get_args(ThinkingLevel):
        return cast("ThinkingLevel", body.level)
    return default
