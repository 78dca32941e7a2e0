"""Roles that answer from a script: real commits to a real store, and no model."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from perdure.engine.flows.answer_text import AnswerText, said_in
from perdure.engine.flows.files.record import RecordFolder
from perdure.engine.flows.journal import Journal
from perdure.engine.flows.node_turn import FlowContext
from perdure.engine.flows.rules.improvement import RoleWork
from perdure.engine.flows.rules.ready_nodes import Work
from perdure.engine.turns.co_commit import CommitParticipant
from perdure.errors import ConfigError, HeadConflict, SessionExists
from perdure.events.scope import scope
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import NewEntry
from perdure.session.flows.graph import Graph
from perdure.session.flows.kinds import FlowStarted
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.ledger import TurnEnd, TurnFinished, TurnStarted
from perdure.session.messages import MESSAGE, assistant, user
from perdure.stores.protocol import Commit, CommitResult, Lease, Write
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import ManualClock
from tests.fakes.flow_log import FLOW

TTL_MS = 60_000


class ScriptedRoles:
    """A ``Roles``. `script` contains the answers of each role by turn, and `told` the messages to
    each role.

    A role without a script cannot work. `running` counts the running turns by session. `scopes`
    contains the scope that each turn was started with.
    """

    def __init__(
        self, store: SessionStore, clock: ManualClock, script: Mapping[str, Sequence[str | TurnEnd]]
    ) -> None:
        self.script = {role: deque(answers) for role, answers in script.items()}
        self.told: dict[str, list[str]] = {}
        self.scopes: list[dict[str, str | int]] = []
        self.most_at_once: dict[str, int] = {}
        self._running: dict[str, int] = {}
        self._store = store
        self._clock = clock

    async def session(self, state: FlowState, role: str) -> StreamId:
        """Return the stream of the role; create it if it is missing."""
        if role not in self.script:
            raise ConfigError(f"role {role!r} has no agent")
        id = StreamId(f"{state.run.flow_id}__{role}")
        if role not in state.sessions:
            header = StreamHeader(id, self._clock.now_ms(), origin="role")
            with suppress(SessionExists):
                await self._commit(Write(stream=id, create=header))
        return id

    async def entry_message(self, state: FlowState, work: Work) -> str:
        """Return the node, its delivered files, and the reply."""
        return f"{work.node.id} {' '.join(work.delivered)} {work.text or ''}".strip()

    async def reflection_message(self, state: FlowState, work: RoleWork) -> str:
        """Return the findings that the role receives, and the reply."""
        return f"look back {' '.join(work.findings)} {work.text or ''}".strip()

    async def is_open(self, session: StreamId) -> bool:
        """See ``Roles``."""
        return (await self._store.state(session)).open_turn is not None

    async def end_foreign_turn(self, session: StreamId) -> bool:
        """See ``Roles``; no turn is foreign."""
        return False

    async def last_answer(self, session: StreamId) -> AnswerText:
        """See ``Roles``."""
        state = await self._store.state(session)
        entries = await self._store.branch(session, state.leaf, kind=MESSAGE)
        return said_in(message for entry in entries if (message := entry.message) is not None)

    async def begin(self, session: StreamId, message: str, companion: CommitParticipant) -> None:
        """Append the start of the turn in one commit and its end in another."""
        role = session.rpartition("__")[2]
        self.scopes.append(dict(scope()))
        self.told.setdefault(role, []).append(message)
        lease = await self._store.acquire_lease(session, "me", TTL_MS)
        try:
            started = new_side(TurnStarted(len(self.told[role]), role))
            await self._append(lease, (started, new_tree(user(message))), companion)
            await self._finish(lease, role, companion)
        finally:
            await self._store.release_lease(lease)

    async def recover(self, session: StreamId, companion: CommitParticipant) -> None:
        """Continue with the next answer of the script."""
        lease = await self._store.acquire_lease(session, "me", TTL_MS)
        try:
            await self._finish(lease, session.rpartition("__")[2], companion)
        finally:
            await self._store.release_lease(lease)

    async def stop(self, session: StreamId) -> None:
        """Do nothing, because a turn of a scripted role ends immediately."""

    async def _finish(self, lease: Lease, role: str, companion: CommitParticipant) -> None:
        self._running[role] = self._running.get(role, 0) + 1
        self.most_at_once[role] = max(self.most_at_once.get(role, 0), self._running[role])
        try:
            await asyncio.sleep(0)  # others have their turn
            answer = self.script[role].popleft()
            is_end = answer in ("aborted", "error", "length")
            end = TurnFinished(answer if is_end else "stop")
            said = () if is_end else (new_tree(assistant(answer)),)
            await self._append(lease, (*said, new_side(end)), companion)
        finally:
            self._running[role] -= 1

    async def _append(
        self, lease: Lease, entries: tuple[NewEntry, ...], companion: CommitParticipant
    ) -> None:
        while True:
            beside = await companion.beside(entries)
            own = (*entries, *beside.notes)
            write = Write(stream=lease.stream, entries=own, lease=lease)
            try:
                committed = await self._commit(write, *beside.writes, blobs=beside.blobs)
            except HeadConflict:
                continue
            companion.committed(committed.entries[1:])
            return

    async def _commit(self, *writes: Write, blobs: tuple[bytes, ...] = ()) -> CommitResult:
        return await self._store.commit(Commit(writes=writes, at=self._clock.now_ms(), blobs=blobs))


async def begun(store: SessionStore, clock: ManualClock, graph: Graph, folder: Path) -> FlowContext:
    """Start a new flow of `graph` whose record folder is `folder`."""
    started = FlowStarted("p", str(folder), str(folder), graph, (graph.nodes[0].id,))
    header = StreamHeader(FLOW, clock.now_ms(), kind="flow")
    write = Write(stream=FLOW, create=header, entries=(new_side(started),))
    await store.commit(Commit(writes=(write,), at=clock.now_ms()))
    return ground(store, clock, folder)


def ground(store: SessionStore, clock: ManualClock, folder: Path) -> FlowContext:
    """Return the context of the flow, with a new journal, as in another process."""

    async def healthy() -> tuple[str, ...]:
        return ()

    record = RecordFolder(folder, folder)
    return FlowContext(Journal(store, FLOW, clock), record, record, healthy)


def hand(folder: Path, *targets: str, name: str) -> str:
    """Return an answer that hands a new file `name` to each of `targets`."""
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(f"what is in {name}")
    lines = [f"- {{target_node_id: {target}, artifact_path: {name}}}" for target in targets]
    return "\n".join(["```handoff", *lines, "```"])


def signal(type: str, **fields: str) -> str:
    """Return an answer with a signal that is no handoff."""
    lines = [f"type: {type}", *(f"{name}: {value}" for name, value in fields.items())]
    return "\n".join(["```handoff", *lines, "```"])
