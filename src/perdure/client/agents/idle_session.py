"""Operations of `Chat` between turns: model, thinking level, compaction, branching."""

from __future__ import annotations

from typing import Literal

import msgspec

from perdure.client.agents.agent import Agent
from perdure.client.agents.chat_workspace import ChatWorkspace
from perdure.client.agents.delegation.questions import asked_below
from perdure.client.agents.turn import Turn
from perdure.client.conversation.append import ExpectedLeaf
from perdure.client.conversation.call_order import CallOrder
from perdure.client.conversation.workspace import Workspace
from perdure.client.reads import EntryRef, OpenQuestion
from perdure.client.session import Session
from perdure.engine.summaries import compact, summarise_branch
from perdure.engine.turns.recovery import spent_in
from perdure.engine.turns.session_turns import SessionTurns
from perdure.errors import InvalidTransition, LeafConflict
from perdure.models.catalogue import require_model_name
from perdure.models.protocol import ThinkingLevel
from perdure.session.argument_checks import takes_all_declared
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import ModelChange, ThinkingChange
from perdure.session.ledger import Spending

ChatStatus = Literal["idle", "running", "closed"]


@takes_all_declared
class IdleSession:
    """The part of a `Chat` that runs no turn."""

    def __init__(
        self,
        session: Session,
        agent: Agent,
        place: ChatWorkspace,
        running: SessionTurns,
        turns: set[Turn],
        *,
        order: CallOrder | None = None,
    ) -> None:
        self.session = session
        self.agent = agent
        self.turn: Turn | None = None
        self._place = place
        self._running = running
        self._turns = turns
        self._order = order or CallOrder()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Chat {self.id!r} agent={self.agent.id!r} {self.status}>"

    @property
    def id(self) -> StreamId:
        """The session's id."""
        return self.session.id

    @property
    def workspace(self) -> Workspace:
        """The current workspace, including changes by `send`."""
        return self._place.place

    @property
    def is_running(self) -> bool:
        """Whether a turn of this handle is running."""
        return self.turn is not None and self.turn.is_running

    @property
    def status(self) -> ChatStatus:
        """The state of this handle; ``closed`` after `cancel` or `end`."""
        return "closed" if self._is_closed else "running" if self.is_running else "idle"

    async def spent(self) -> Spending:
        """Return the model usage of the session, from the calls in its own log."""
        return await spent_in(self._running.environment.store, self.id)

    async def questions(self) -> list[OpenQuestion]:
        """List the open questions of the chat and of agents that it invoked, oldest first.

        Answer each with `Store.answer`, whatever its session.
        """
        own = await self.session.questions()
        environment = self._running.environment
        below = await asked_below(environment.store, self.id, environment.clock.now_ms())
        found = (*own, *(asked.question for asked in below))
        return sorted(found, key=lambda question: question.at)

    async def set_model(self, model: str) -> Entry:
        """Use another model (``provider:name``) from the next turn on, on this branch.

        Raises: WrongArgument for one without a provider.
        """
        require_model_name(model)
        return await self.session.append(ModelChange(model))

    async def set_thinking_level(self, level: ThinkingLevel) -> Entry:
        """Use another thinking level from the next turn on, on this branch."""
        return await self.session.append(ThinkingChange(level))

    async def compact(self, focus: str | None = None) -> Entry | None:
        """Summarise older messages to shorten the context. `focus` says what the summary must keep.

        Shape: the compaction; None when there is nothing to summarise.
        Raises: InvalidTransition while a turn runs; TurnOpen; LeaseHeld; TurnFailed when no usable
        summary came.
        """
        self._require_idle("compact")
        return await compact(self._running.environment, self._running.terms, focus)

    async def branch(
        self,
        entry: EntryRef | None,
        focus: str | None = None,
        *,
        expected_leaf: ExpectedLeaf = msgspec.UNSET,
    ) -> Entry | None:
        """Continue from `entry` (None: before the root) with a summary of the abandoned branch.

        The agent's model writes the summary; `focus` says what it must keep. A branch without
        messages gets no summary. Raises LeafConflict if the leaf is no longer the summarised one,
        or not `expected_leaf`.
        Shape: None when `entry` is already the leaf.
        Raises: as `compact`; as `Session.branch`.
        """
        self._require_idle("branch")
        target = None if entry is None else (await self.session.path(entry))[-1].id
        await self.session.info()  # refreshes the leaf of the handle
        expected = await self._expected(expected_leaf)
        if self.session.leaf == target:
            return await self.session.branch(target, expected_leaf=expected)
        running = self._running
        summary = await summarise_branch(running.environment, running.terms, target, focus)
        if summary is None:
            return await self.session.branch(target, expected_leaf=expected)
        return await self.session.branch_with_summary(target, summary, expected_leaf=expected)

    async def _expected(self, leaf: ExpectedLeaf) -> EntryId | None:
        """Return the current leaf. Raises: LeafConflict unless that is `leaf`."""
        stands = self.session.leaf
        if leaf is msgspec.UNSET:
            return stands
        wanted = None if leaf is None else (await self.session.path(leaf))[-1].id
        if wanted != stands:
            raise LeafConflict(self.id, wanted, stands)
        return stands

    def _require_idle(self, wanted: str) -> None:
        if self._is_closed:
            raise InvalidTransition("closed", wanted)
        if self.is_running:
            raise InvalidTransition("running", wanted)
