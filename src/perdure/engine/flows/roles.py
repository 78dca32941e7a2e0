"""The port through which a flow has its roles work: sessions, turns, and what they are told."""

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
    """A person has to say what a role works with before it can. `offers` is what there is."""

    def __init__(self, told: str, offers: Offers) -> None:
        super().__init__(told)
        self.offers = offers


class Roles(Protocol):
    """The role sessions of one flow. All of it may be asked from several tasks at once."""

    async def session(self, state: FlowState, role: str) -> StreamId:
        """The session of a role instance, made with its context bundle when there is none yet.

        A model may have to choose first what it works with, in a session of its own.
        Raises: ConfigError when the role cannot work: no agent, or a required reading is missing;
        Unconfigured when a person has to say what it works with; LeaseHeld, LeaseLost when another
        process has it chosen.
        """
        ...

    async def entry_message(self, state: FlowState, work: Work) -> str:
        """What a node's work begins with. Raises: ConfigError when a reading is missing."""
        ...

    async def reflection_message(self, state: FlowState, work: RoleWork) -> str:
        """What a role's looking back begins with."""
        ...

    async def is_open(self, session: StreamId) -> bool:
        """Whether a turn of the session is open, here or in a process that is gone.

        Raises: ConfigError when the session was erased.
        """
        ...

    async def end_foreign_turn(self, session: StreamId) -> bool:
        """End an open turn that is not in force here, as interrupted; whether there was one.

        Raises: LeaseHeld while a process runs it.
        """
        ...

    async def last_answer(self, session: StreamId) -> AnswerText:
        """What was said last in the session."""
        ...

    async def begin(self, session: StreamId, message: str, companion: CommitParticipant) -> None:
        """Run a turn that `message` begins to its end, however it ends.

        Raises: LeaseHeld when another process runs one; what `companion` raises.
        """
        ...

    async def recover(self, session: StreamId, companion: CommitParticipant) -> None:
        """Run the open turn of a process that is gone to its end; nothing when it is closed.

        Raises: LeaseHeld while that process lives; what `companion` raises.
        """
        ...

    async def stop(self, session: StreamId) -> None:
        """End the turn that runs here, as aborted; nothing happens when none does."""
        ...
