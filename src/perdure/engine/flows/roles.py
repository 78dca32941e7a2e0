"""The interface through which a flow runs its roles: their sessions, turns and messages."""

from __future__ import annotations

from typing import Protocol

from perdure.engine.flows.answer_text import AnswerText
from perdure.engine.flows.rules.improvement import RoleWork
from perdure.engine.flows.rules.ready_nodes import Work
from perdure.engine.turns.co_commit import CommitParticipant
from perdure.errors import ConfigError
from perdure.session.flows.kinds import Offers
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId


class Unconfigured(ConfigError):
    """Raised if a person has to configure a role before the role can work.

    `offers` are the models and skills from which the person can choose.
    """

    def __init__(self, told: str, offers: Offers) -> None:
        super().__init__(told)
        self.offers = offers


class Roles(Protocol):
    """Runs the role sessions of one flow. Several tasks can use this object at the same time."""

    async def session(self, state: FlowState, role: str) -> StreamId:
        """Return the session of a role instance; create it with its system prompt if needed.

        If the role's configuration must be chosen by a model (the selector), the selector runs
        first, in its own session.
        Raises: ConfigError if the role has no agent or lacks a required reading; Unconfigured if a
        person has to choose the role's configuration; LeaseHeld or LeaseLost if another process
        runs the selector.
        """
        ...

    async def entry_message(self, state: FlowState, work: Work) -> str:
        """Return the first message of a node's work.

        Raises: ConfigError if a reading is missing.
        """
        ...

    async def reflection_message(self, state: FlowState, work: RoleWork) -> str:
        """Return the first message of a role that reviews the flow."""
        ...

    async def is_open(self, session: StreamId) -> bool:
        """Return whether a turn of the session is open, in this process or after a crash.

        Raises: ConfigError if the session was erased.
        """
        ...

    async def end_foreign_turn(self, session: StreamId) -> bool:
        """End an open turn of an imported log as interrupted; return whether a turn was ended.

        Raises: LeaseHeld if a process runs the turn.
        """
        ...

    async def last_answer(self, session: StreamId) -> AnswerText:
        """Return the last answer in the session."""
        ...

    async def begin(self, session: StreamId, message: str, companion: CommitParticipant) -> None:
        """Begin a turn with `message`, and wait until it has ended, successfully or not.

        Raises: LeaseHeld if another process runs a turn; the errors that `companion` raises.
        """
        ...

    async def recover(self, session: StreamId, companion: CommitParticipant) -> None:
        """Finish the open turn of a process that died; do nothing if no turn is open.

        Raises: LeaseHeld if the process of the turn is alive; the errors that `companion` raises.
        """
        ...

    async def stop(self, session: StreamId) -> None:
        """Abort the session's turn if it runs in this process; otherwise do nothing."""
        ...
