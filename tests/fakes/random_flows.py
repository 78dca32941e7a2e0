"""Random flows: graphs, correct and wrong answers of roles, and processes that die."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

import msgspec
from hypothesis import strategies as st

from perdure.engine.flows.node_turn import NodeClaimLost
from perdure.engine.flows.roles import Unconfigured
from perdure.engine.flows.rules.closure import is_work_left, obstacles
from perdure.engine.flows.rules.improvement import FEEDBACK_ROLE, RoleWork
from perdure.engine.flows.rules.ready_nodes import Work
from perdure.engine.flows.rules.reflection import assigned_path
from perdure.engine.turns.co_commit import CommitParticipant
from perdure.errors import LeaseHeld, TurnOpen
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph, edge_key
from perdure.session.flows.kinds import Offers, RepairCode
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, CommitResult, Lease, LeaseRequest, Write
from tests.fakes.clock import ManualClock
from tests.fakes.flow_oracle import Told
from tests.fakes.scripted_roles import ScriptedRoles, hand, signal

P = ParamSpec("P")
T = TypeVar("T")

ROLES = ("owner", "developer", "developer_1", "reviewer", "writer")
STRANGER = "stranger"
"""A role for which no program has an agent."""

TOLD = "TOLD "
"""The beginning of an entry message; a `Told` as JSON follows it."""

Moment = Literal["before", "after", "asked"]
"""When a process ends: before a commit, after a commit, or when the process is asked to end."""

SLOW = 100
"""Number of steps of the event loop in which other processes can run whole turns."""

MANY = 28
"""Number of nodes of a large graph, without the first and the last node."""

CHOOSY = "writer"
"""A role that does not begin before a person has chosen its model."""

ENDS = ("aborted", "error", "length")


@st.composite
def graphs(draw: st.DrawFn, most: int = MANY) -> Graph:
    """Draw a runnable workflow: 1 to 30 nodes, at most `most` inner nodes, edges only forward.

    The last node belongs to the owner and has no successors; some other nodes of the owner have
    none either. A node can have the name of a role, even of a role that is not its own.
    """
    # Few nodes meet more of each other; hypothesis alone would mostly draw the ends of a range.
    inner = draw(st.sampled_from([n for n in (0, 1, 2, 2, 3, 3, 4, 4, 5, MANY) if n <= most]))
    inner = draw(st.integers(6, most)) if inner == MANY else inner
    if inner == 0 and draw(st.booleans()):
        return Graph("alone", (FlowNode("owner-intake", "owner"),))
    names = [*ROLES] if draw(st.integers(0, 3)) == 0 else []
    middle = [
        FlowNode(
            names[n] if n < len(names) else f"n{n}",
            draw(st.sampled_from((*ROLES, *ROLES, *ROLES, STRANGER))),
            has_human=draw(st.integers(0, 7)) == 0,
            awaits_all_inputs=draw(st.booleans()),
        )
        for n in range(inner)
    ]
    nodes = [FlowNode("owner-intake", "owner"), *middle, FlowNode("end", "owner")]
    pairs: set[tuple[int, int]] = set()
    for place in range(1, len(nodes)):
        for source in draw(st.sets(st.integers(0, place - 1), min_size=1, max_size=2)):
            pairs.add((source, place))
    with_way_on = {source for source, _ in pairs}
    pairs |= {
        (n, len(nodes) - 1)
        for n in range(len(nodes) - 1)
        if n not in with_way_on and not (nodes[n].role == "owner" and draw(st.booleans()))
    }
    edges = tuple(FlowEdge(nodes[a].id, nodes[b].id) for a, b in sorted(pairs))
    return Graph("random", tuple(nodes), edges)


# ---------------------------------------------------------------- processes


class HastyClock(ManualClock):
    """A clock whose sleepers wake up quickly; each reading advances it by a millisecond."""

    def now_ms(self) -> int:
        """Return the time of day, later than at every earlier call."""
        self.advance(0.001)
        return super().now_ms()

    async def sleep(self, seconds: float) -> None:
        """Let other tasks run for some steps; then advance steady time, but not the time of day."""
        for _ in range(20):
            await asyncio.sleep(0)
        self._steady_s += seconds


class AtOnce(ThreadPoolExecutor):
    """An executor that runs work in the caller, so that the same seed gives the same run."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn` now; return a future with its result or its exception."""
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is whoever asked that it is raised to
            done.set_exception(error)
        return done


class Process:
    """The store as one process uses it until it dies. The calls of a dead process have no effect.

    The process dies before or after (`moment`) the commit that follows `dies_at` other commits.
    With moment "asked", the process is asked to end after the chosen commit and ends normally.
    `dead` contains the names of dead processes, whose leases are free.
    """

    def __init__(
        self,
        store: MemoryStore,
        name: str,
        dead: set[str],
        dies_at: int | None = None,
        moment: Moment = "before",
    ) -> None:
        self.ends = asyncio.Event()
        self.died = False
        self._store = store
        self._name = name
        self._dead = dead
        self._left = dies_at
        self._moment = moment

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, commit: Commit) -> CommitResult:
        """See ``SessionStore``."""
        is_last = self._left == 0
        self._left = None if self._left is None else self._left - 1
        if self.died or (is_last and self._moment == "before"):
            await self._die()
        committed = await self._led(commit)
        if is_last and self._moment == "asked":
            self.ends.set()
        elif is_last:
            await self._die()
        return committed

    async def _led(self, commit: Commit) -> CommitResult:
        """Make `commit` with its leases; take over a lease whose owner is known to be dead."""
        try:
            return await self._store.commit(self._taken(commit, None))
        except LeaseHeld as held:
            if held.owner not in self._dead:
                raise
            return await self._store.commit(self._taken(commit, held.owner))

    def _taken(self, commit: Commit, dead_owner: str | None) -> Commit:
        writes: list[Write] = []
        for write in commit.writes:
            taking = write.taking
            if taking is not None:
                taking = LeaseRequest(self._name, taking.ttl_ms, dead_owner)
            writes.append(msgspec.structs.replace(write, taking=taking))
        return msgspec.structs.replace(commit, writes=tuple(writes))

    async def acquire_lease(
        self, stream: StreamId, owner: str, ttl_ms: int, *, dead_owner: str | None = None
    ) -> Lease:
        """See ``SessionStore``; the lease is acquired even from an owner known to be dead."""
        try:
            return await self._store.acquire_lease(stream, self._name, ttl_ms)
        except LeaseHeld as held:
            if held.owner not in self._dead:
                raise
            return await self._store.acquire_lease(
                stream, self._name, ttl_ms, dead_owner=held.owner
            )

    async def release_lease(self, lease: Lease) -> None:
        """See ``SessionStore``."""
        if not self.died:
            await self._store.release_lease(lease)

    def kill(self) -> None:
        """From now on, treat this process as dead."""
        self._dead.add(self._name)
        self.died = True
        self.ends.set()

    async def _die(self) -> None:
        self.kill()
        await asyncio.Event().wait()


# ---------------------------------------------------------------- what roles answer

Answer = Callable[["Desk"], str]


class Desk(msgspec.Struct):
    """The folder in which a role writes, and the node on which it works."""

    folder: Path
    state: FlowState
    node: str
    chance: random.Random
    serial: int

    def hands(self, *targets: str) -> str:
        """Hand a new file to each of `targets`."""
        return hand(self.folder, *targets, name=f"a{self.serial}.md")

    @property
    def near(self) -> str:
        """Return a neighbour of the node, or the node itself if it has none."""
        graph = self.state.graph
        return (*graph.successors(self.node), *graph.predecessors(self.node), self.node)[0]

    def names(self, path: str) -> str:
        """Return a handoff of `path` to a neighbour."""
        return f"```handoff\ntarget_node_id: {self.near}\nartifact_path: {path}\n```"

    def written(self, name: str, text: str) -> str:
        """Write a file that contains `text`; return a handoff of it."""
        (self.folder / name).write_text(text)
        return self.names(name)


def _block(text: str) -> Answer:
    return lambda _: f"I am done.\n```handoff\n{text}\n```"


def _folder(desk: Desk) -> str:
    (desk.folder / "findings").mkdir(exist_ok=True)
    return desk.names("findings")


def _elsewhere(desk: Desk) -> str:
    link = desk.folder / "elsewhere"
    if not link.is_symlink():
        link.symlink_to("/etc/hostname")
    return desk.names("elsewhere")


WRONG: Mapping[str, tuple[RepairCode, Answer]] = {
    "words alone": ("missing_block", lambda _: "I am done."),
    "another fence": ("missing_block", lambda _: "```yaml\ntype: prompt-human\n```"),
    "broken YAML": ("yaml_parse", _block("target_node_id: [")),
    "a text": ("invalid_target_shape", _block("build")),
    "an empty list": ("invalid_target_shape", _block("[]")),
    "a list of texts": ("invalid_target_shape", _block("- build")),
    "no artifact": ("missing_required_field", _block("target_node_id: n0")),
    "no target": ("missing_required_field", _block("artifact_path: a.md")),
    "no findings": ("missing_required_field", _block("type: meta-analysis-complete")),
    "no file": ("artifact_unavailable", lambda desk: desk.names("nowhere.md")),
    "a way out": ("artifact_unavailable", lambda desk: desk.names("../../etc/hostname")),
    "a link out": ("artifact_unavailable", _elsewhere),
    "an empty file": ("artifact_unavailable", lambda desk: desk.written("empty.md", " \n")),
    "a folder": ("artifact_unavailable", _folder),
    "no node": ("invalid_transition", lambda desk: desk.hands("nobody")),
    "itself": ("invalid_transition", lambda desk: desk.hands(desk.node)),
    "the same target twice": ("invalid_transition", lambda desk: desk.hands(*2 * (desk.near,))),
    "an unknown signal": ("unknown_signal_type", _block("type: done")),
    "looking back": (
        "unknown_signal_type",
        _block("type: meta-analysis-complete\nfindings_path: f"),
    ),
    "feedback": ("unknown_signal_type", _block("type: backward-pass-complete\nartifact_path: f")),
    "too long": ("output_limit", lambda _: "length"),
}
"""Wrong ends of a turn: for each, the code of the repair that it causes, and the answer."""


def owed(state: FlowState, node: str) -> list[str]:
    """Return the nodes to which `node` still owes a handoff."""
    completed = state.run.completed_handoffs
    return [t for t in state.graph.successors(node) if edge_key(node, t) not in completed]


def good_answer(desk: Desk) -> str:
    """Return an answer that advances the work."""
    following = desk.state.graph.successors(desk.node)
    if following:
        return desk.hands(*(owed(desk.state, desk.node) or following))
    if not obstacles(desk.state, desk.node):
        return signal("forward-pass-closed")
    if _lacks_inputs(desk) or is_work_left(desk.state, desk.node):
        return signal("await-handoff")
    return signal("prompt-human")


MOODS: Mapping[str, Mapping[str, int]] = {
    "even": {
        "on": 16,
        "wrong": 3,
        "back": 4,
        **dict.fromkeys(("far", "used", "same", "both", "ask", "end", "await", "close"), 1),
    },
    "waiting": {"on": 5, "await": 8, "back": 2, "ask": 1},
    "picky": {"on": 4, "back": 6, "both": 3, "again": 4, "await": 1},
    "careless": {"on": 5, "wrong": 8, "far": 1, "used": 1, "same": 1, "end": 1, "close": 1},
}
"""How often a role does each action, in each of its moods."""


def in_mood(mood: str) -> Answer:
    """Return a function that chooses a random answer. `mood` weights the kinds of answers."""
    weights = MOODS[mood]
    kinds = [kind for kind, weight in weights.items() for _ in range(weight)]

    def answer(desk: Desk) -> str:
        chance = desk.chance
        kind = chance.choice(kinds)
        if _lacks_inputs(desk) and chance.random() < 0.3:
            kind = "await"
        made = _handed_over(desk, kind)
        if made is not None:
            return made
        if kind == "wrong":
            return WRONG[chance.choice(list(WRONG))][1](desk)
        if kind == "end":
            return chance.choice(ENDS)
        return signal(
            {"ask": "prompt-human", "await": "await-handoff"}.get(kind, "forward-pass-closed")
        )

    return answer


def _lacks_inputs(desk: Desk) -> bool:
    """Return whether the node still waits for an input."""
    completed, before = desk.state.run.completed_handoffs, desk.state.graph.predecessors(desk.node)
    return any(edge_key(source, desk.node) not in completed for source in before)


def _handed_over(desk: Desk, kind: str) -> str | None:
    """Return a handoff of this `kind`, which can be invalid.

    Return None if the kind is no handoff, or if the node has no neighbour for it.
    """
    chance, graph = desk.chance, desk.state.graph
    before, following = graph.predecessors(desk.node), graph.successors(desk.node)
    any_node = chance.choice(graph.nodes).id
    if kind == "on" and following:
        some = owed(desk.state, desk.node) or list(following)
        return desk.hands(*chance.sample(some, chance.randint(1, len(some))))
    if kind == "again" and following:
        return desk.hands(chance.choice(following))
    if kind == "back" and before:
        return desk.hands(chance.choice(before))
    if kind == "both" and before and following:
        return desk.hands(chance.choice(following), chance.choice(before))
    if kind == "same" and following:
        return desk.written(f"s{desk.serial}.md", "always the same")
    if kind == "far":
        return desk.hands(any_node)
    return hand(desk.folder, any_node, name="a1.md") if kind == "used" else None


class RandomRoles(ScriptedRoles):
    """Roles whose answers come from `answer`. `meanwhile` is called while a turn runs."""

    def __init__(
        self,
        process: Process,
        clock: ManualClock,
        answer: Callable[[str], Awaitable[str]],
        meanwhile: Callable[[], Awaitable[None]],
        chance: random.Random,
    ) -> None:
        super().__init__(process, clock, {role: [] for role in (*ROLES, FEEDBACK_ROLE)})  # pyright: ignore[reportArgumentType] - all else goes through to the store
        self._answer_of = answer
        self._meanwhile = meanwhile
        self._chance = chance
        self._stopped: set[StreamId] = set()

    async def session(self, state: FlowState, role: str) -> StreamId:
        """Return the role's own stream. The role `CHOOSY` must be configured first."""
        if role == CHOOSY and role not in state.roles:
            raise Unconfigured("choose", Offers(("scripted:a", "scripted:b")))
        return await super().session(state, role)

    async def entry_message(self, state: FlowState, work: Work) -> str:
        """Return the content of the work as text, which a test compares with the claim."""
        receiving = state.run.receiving_handoff

        def paths(keys: Sequence[str]) -> tuple[str, ...]:
            return tuple(path for key in keys for path in receiving.get(key, ()))

        for _ in range(self._chance.choice((1, 1, 1, SLOW))):  # files are read meanwhile
            await asyncio.sleep(0)
        told = Told(work.node.id, paths(work.delivered), paths(work.superseded), work.text)
        return TOLD + msgspec.json.encode(told).decode()

    async def reflection_message(self, state: FlowState, work: RoleWork) -> str:
        """Return the role and a person's reply."""
        return TOLD + msgspec.json.encode(Told(work.role, text=work.text)).decode()

    async def begin(self, session: StreamId, message: str, companion: CommitParticipant) -> None:
        """Begin the turn, sometimes after a random delay.

        An open turn must be recovered first, as in `RoleTurns`.
        """
        for _ in range(self._chance.choice((0, 0, 0, SLOW))):  # what it is told is put together
            await asyncio.sleep(0)
        try:
            await super().begin(session, message, companion)
        except TurnOpen:
            raise NodeClaimLost(session) from None

    async def stop(self, session: StreamId) -> None:
        """Make the running turn end as aborted."""
        self._stopped.add(session)

    async def _finish(self, lease: Lease, role: str, companion: CommitParticipant) -> None:
        for _ in range(self._chance.randint(0, 6)):
            await asyncio.sleep(0)
        await self._meanwhile()
        for _ in range(self._chance.randint(0, 3)):
            await asyncio.sleep(0)
        answer = await self._answer_of(role)
        self.script[role].append("aborted" if lease.stream in self._stopped else answer)
        self._stopped.discard(lease.stream)
        await super()._finish(lease, role, companion)


def reflection(
    folder: Path, state: FlowState, role: str, chance: random.Random, *, is_good: bool
) -> str:
    """Return the answer at the end of a role's turn in the improvement phase."""
    path = assigned_path(state, role)
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"what {role} found")
    is_feedback = role == FEEDBACK_ROLE
    if not is_good and chance.random() < 0.3:
        wrong = ("I am done.", *ENDS, signal("prompt-human"), signal("forward-pass-closed"))
        return chance.choice((*wrong, signal("meta-analysis-complete", findings_path="other.md")))
    if is_feedback:
        return signal("backward-pass-complete", artifact_path=path)
    return signal("meta-analysis-complete", findings_path=path)
