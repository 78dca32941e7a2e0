"""A turn joined to its flow: claimed with its first commit, settled with its last.

What the flow becomes is decided on its newest state at every attempt to commit. A claim that is no
longer what was seen, because somebody else was faster, is given up before anything is appended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgspec

from perdure.engine.flows.files.record import Found, RecordFolder
from perdure.engine.flows.journal import Journal
from perdure.engine.flows.rules.finishing import Ended
from perdure.engine.flows.rules.parts import Part
from perdure.engine.turns.companion import Beside
from perdure.session.entries import NewEntry
from perdure.session.flows.run import FlowState
from perdure.session.ledger import ToolFinished, TurnFinished, TurnStarted
from perdure.session.messages import MESSAGE, decode_message
from perdure.session.notes import SideBody
from perdure.stores.protocol import Write

NOT_APPROVED = "not_approved"
"""Error code of a tool call that a person refused."""

Checks = Callable[[], Awaitable[tuple[str, ...]]]
"""What is not in order in the project, each in a sentence; asked before a flow is closed."""

LastAnswer = Callable[[], Awaitable[str]]
"""The text of the newest answer in the session, for a turn that another process began."""


class ClaimLost(Exception):
    """The work is not there any more as it was seen: somebody else has it, or it has changed."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What all turns of a flow share."""

    journal: Journal
    record: RecordFolder
    workspace: RecordFolder
    checks: Checks


class JoinedTurn:
    """A ``Companion``: one turn of `part`."""

    def __init__(self, ground: Ground, part: Part, last_answer: LastAnswer) -> None:
        self._ground = ground
        self._part = part
        self._last_answer = last_answer
        self._answer: str | None = None
        self._is_denied = False

    async def beside(self, entries: Sequence[NewEntry]) -> Beside:
        """The claim with the turn's beginning, what follows from it with its end.

        Raises: ClaimLost.
        """
        self._listen(entries)
        is_begun = any(entry.kind == TurnStarted.kind for entry in entries)
        finished = next((e for e in entries if e.kind == TurnFinished.kind), None)
        if not is_begun and finished is None:
            return Beside()
        state = await self._ground.journal.state()
        written = self._claim(state) if is_begun else ()
        if finished is None:
            return Beside(self._writes(state, written))
        ended = await self._ended(msgspec.json.decode(finished.body, type=TurnFinished))
        found = await self._found(state, ended)
        settled = await self._settled(state, ended, found)
        contents = tuple(f.content for f in found.values() if f.artifact.problem is None)
        return Beside(self._writes(state, (*written, settled)), contents)

    def _listen(self, entries: Sequence[NewEntry]) -> None:
        """Remember what the turn's end will be judged by."""
        for entry in entries:
            if entry.kind == MESSAGE:
                message = decode_message(entry.body, entry.v)
                self._answer = message.text if message.role == "assistant" else self._answer
            elif entry.kind == ToolFinished.kind:
                outcome = msgspec.json.decode(entry.body, type=ToolFinished)
                self._is_denied = self._is_denied or outcome.error_code == NOT_APPROVED

    def _claim(self, state: FlowState) -> tuple[SideBody, ...]:
        if self._part.repair(state) is not None:
            return ()  # it runs already, and goes on
        claim = self._part.claim(state)
        if claim is None:
            raise ClaimLost(self._part.role)
        return (claim,)

    def _writes(self, state: FlowState, bodies: tuple[SideBody, ...]) -> tuple[Write, ...]:
        return (self._ground.journal.write(state, *bodies),) if bodies else ()

    async def _ended(self, finished: TurnFinished) -> Ended:
        text = self._answer if self._answer is not None else await self._last_answer()
        return Ended(finished.end, text, finished.error, self._is_denied)

    async def _found(self, state: FlowState, ended: Ended) -> dict[str, Found]:
        ground, part = self._ground, self._part
        folder = ground.record if part.folder == "record" else ground.workspace
        names = part.names(state, ended) if ended.end == "stop" else ()
        return await asyncio.to_thread(folder.look_up, names)

    async def _settled(self, state: FlowState, ended: Ended, found: dict[str, Found]) -> SideBody:
        unhealthy = await self._ground.checks() if self._part.is_closing(state) else ()
        artifacts = {name: f.artifact for name, f in found.items()}
        return self._part.settled(state, ended, artifacts, unhealthy)
