"""A turn of a flow: its first commit claims the node, and its last commit records the outcome.

Each attempt to commit is based on the newest state of the flow. If another process has changed the
claimed work, the turn is abandoned before anything is appended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgspec

from perdure.engine.flows.answer_text import AnswerText
from perdure.engine.flows.documents.answers import kept_answer
from perdure.engine.flows.documents.turn_end import answer_path, task_finished
from perdure.engine.flows.files.graph_file import Drawn, GraphFile
from perdure.engine.flows.files.record import Found, RecordFolder
from perdure.engine.flows.journal import Journal
from perdure.engine.flows.rules.node_end import Ended, drawn_wrong
from perdure.engine.flows.rules.parts import NodePart, TurnPart
from perdure.engine.flows.rules.structure import OWNER
from perdure.engine.turns.co_commit import CoCommit
from perdure.session.codec import new_side
from perdure.session.entries import Entry, NewEntry, Sibling
from perdure.session.flows.graph import base_role
from perdure.session.flows.kinds import RepairAsked, WorkflowChanged
from perdure.session.flows.run import FlowState, RoleConfiguration
from perdure.session.ledger import Failure, TurnFinished, TurnStarted
from perdure.session.messages import MESSAGE, decode_message
from perdure.session.notes import NodeEntered, SideBody
from perdure.stores.protocol import Write

replace = msgspec.structs.replace

DENIED: Failure = "not_approved"
"""Failure of a turn that ended because a person denied a tool call."""

Checks = Callable[[], Awaitable[tuple[str, ...]]]
"""Returns the problems of the project as sentences.

The function is called before a flow is closed.
"""

LastAnswer = Callable[[], Awaitable[AnswerText]]
"""Returns the last answer in the session.

The function is called for a turn that another process began.
"""


class NodeClaimLost(Exception):
    """Raised if the work of a turn has changed, or another process has claimed the work."""


@dataclass(frozen=True, slots=True)
class FlowContext:
    """The objects that all turns of a flow share.

    `drawing` reads the files that define the flow's graph; None if these files cannot be edited.
    """

    journal: Journal
    record: RecordFolder
    workspace: RecordFolder
    checks: Checks
    drawing: GraphFile | None = None


class NodeTurn:
    """A ``CommitParticipant`` for one turn of a node or of a reviewing role.

    `part` is the node or role; `repair` is the repair request that the turn answers, if any.
    """

    def __init__(
        self,
        ground: FlowContext,
        part: TurnPart,
        last_answer: LastAnswer,
        repair: RepairAsked | None = None,
    ) -> None:
        self._ground = ground
        self._part = part
        self._last_answer = last_answer
        self._repair = repair
        self._said: AnswerText | None = None
        """The appended text of the last answer; None before it was looked up."""
        self._next_said = AnswerText()
        self._configured = self._configuration(ground.journal.latest)
        self._is_unheard = False
        """Whether the outcome of the last commit to the flow is unknown."""

    async def beside(self, entries: Sequence[NewEntry]) -> CoCommit:
        """Return what the flow adds to a commit of the turn: the claim or the outcome.

        Raises: NodeClaimLost if the work has changed or another process has claimed it.
        """
        is_begun = any(entry.kind == TurnStarted.kind for entry in entries)
        if self._said is None and not is_begun:
            await self._check_recovered()
        await self._listen(entries)
        finished = next((e for e in entries if e.kind == TurnFinished.kind), None)
        if not is_begun and finished is None:
            return CoCommit()
        state = await self._stands(is_begun=is_begun)
        written = self._claim(state) if is_begun else ()
        if finished is None:
            return CoCommit(self._writes(state, written), notes=self._entry_markers(state, entries))
        ended = self._turn_end(msgspec.json.decode(finished.body, type=TurnFinished))
        drawn, found = await self._read_files(state, ended)
        changed = () if drawn.graph is None else (WorkflowChanged(drawn.graph),)
        now = state if drawn.graph is None else replace(state, graph=drawn.graph)
        if state.document is not None:
            found = await self._document_answer(ended)
        settled = await self._outcome(now, ended, found, drawn.faults)
        contents = tuple(f.content for f in found.values() if f.artifact.problem is None)
        return CoCommit(self._writes(state, (*written, *changed, settled)), contents)

    def committed(self, entries: Sequence[Sequence[Entry]]) -> None:
        """Update the journal after a commit."""
        self._is_unheard = False
        self._said = self._next_said
        for share in entries:
            self._ground.journal.follow(share)

    async def _stands(self, *, is_begun: bool) -> FlowState:
        """Return the state of the flow on which the next commit is based, usually the cached state.

        The store rejects a commit that is based on an outdated state of the flow; after a
        rejection, the state is read again. The state is also read before the first commit of a
        repair, because that commit writes nothing to the flow, so the store would not reject it.
        """
        is_doubtful = self._is_unheard or (is_begun and self._repair is not None)
        journal = self._ground.journal
        return await (journal.state() if is_doubtful else journal.latest_or_read())

    async def _check_recovered(self) -> None:
        """Check that a recovered turn still has work to do.

        Raises: NodeClaimLost if the work was finished before the turn's process died.
        """
        if not self._part.is_running(await self._ground.journal.state()):
            raise NodeClaimLost(self._part.role)

    async def _listen(self, entries: Sequence[NewEntry]) -> None:
        """Remember the answer in `entries`; it decides the outcome of the turn."""
        if self._said is None:
            is_begun = any(entry.kind == TurnStarted.kind for entry in entries)
            self._said = AnswerText() if is_begun else await self._last_answer()
        said = self._said
        for entry in entries:
            if entry.kind == MESSAGE:
                said = said.then(decode_message(entry.body, entry.v))
        self._next_said = said

    def _configuration(self, state: FlowState | None) -> RoleConfiguration | None:
        return None if state is None else state.roles.get(self._part.role)

    def _claim(self, state: FlowState) -> tuple[SideBody, ...]:
        if self._configuration(state) != self._configured:
            raise NodeClaimLost(self._part.role)  # its role was reconfigured
        if self._repair is not None and self._part.repair(state) == self._repair:
            return ()  # it is running already and continues
        claim = None if self._repair is not None else self._part.claim(state)
        if claim is None:
            raise NodeClaimLost(self._part.role)
        return (claim,)

    def _entry_markers(self, state: FlowState, entries: Sequence[NewEntry]) -> tuple[NewEntry, ...]:
        """Return a ``node_entered`` entry if the role moves to another node; else ()."""
        part = self._part
        if not isinstance(part, NodePart) or state.at_node.get(part.role) == part.node:
            return ()
        places = [n for n, entry in enumerate(entries) if entry.kind == MESSAGE]
        note = NodeEntered(part.node, state.run.flow_id)
        return tuple(new_side(note, Sibling(place)) for place in places[-1:])

    def _writes(self, state: FlowState, bodies: tuple[SideBody, ...]) -> tuple[Write, ...]:
        self._is_unheard = bool(bodies)
        return (self._ground.journal.write(state, *bodies),) if bodies else ()

    def _turn_end(self, finished: TurnFinished) -> Ended:
        is_denied = finished.failure == DENIED
        return Ended(finished.end, self._next_said.text, finished.error, is_denied)

    async def _read_files(self, state: FlowState, ended: Ended) -> tuple[Drawn, dict[str, Found]]:
        """Return the graph, if the owner's turn edited it, and the files that the answer names."""
        ground, part = self._ground, self._part
        is_drawing = isinstance(part, NodePart) and base_role(part.role) == OWNER
        drawing = ground.drawing if is_drawing else None
        folder = ground.record if part.folder == "record" else ground.workspace
        names = part.names(state, ended) if ended.end == "stop" else ()
        if drawing is None and not names:
            return Drawn(None), {}

        def look() -> tuple[Drawn, dict[str, Found]]:
            drawn = Drawn(None) if drawing is None else drawing.change(state)
            return drawn, folder.look_up(names)

        return await asyncio.to_thread(look)

    async def _document_answer(self, ended: Ended) -> dict[str, Found]:
        """Write the answer of a workflow document's node to its file; return it as the artifact."""
        part, record = self._part, self._ground.record
        if ended.end != "stop" or not isinstance(part, NodePart):
            return {}
        path = answer_path(part.node)
        kept = await asyncio.to_thread(kept_answer, record.folder, path, ended.text)
        return {} if kept is None else {path: kept}

    async def _outcome(
        self, state: FlowState, ended: Ended, found: dict[str, Found], faults: tuple[str, ...]
    ) -> SideBody:
        if state.document is not None and isinstance(self._part, NodePart):
            answer = next((each.artifact for each in found.values()), None)
            return task_finished(state, self._part.node, ended, answer)
        if faults and ended.end == "stop" and isinstance(self._part, NodePart):
            return drawn_wrong(state, self._part.node, faults)
        unhealthy = await self._ground.checks() if self._part.is_closing(state) else ()
        artifacts = {name: f.artifact for name, f in found.items()}
        return self._part.outcome(state, ended, artifacts, unhealthy)
