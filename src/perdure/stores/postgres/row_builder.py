"""Convert a write to rows, without I/O, given the facts that the append and branch rules need.

The append and branch rules may need facts about any entry of the log. If a fact is missing,
`NotLookedUp` is raised. After a `NotLookedUp` error, the caller looks up the missing fact and
starts again, because nothing was changed yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from perdure.errors import CorruptLog
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import Compaction, ModelChange, ThinkingChange
from perdure.session.ledger import TurnFinished, TurnStarted
from perdure.session.messages import MESSAGE
from perdure.stores.append_rules import Admission, plan_append, state_after
from perdure.stores.chain import SALT_BYTES, body_digest, commit_hash, header_line
from perdure.stores.postgres.rows import Contents, Node, Numbers, Salts, State, Stream, Texts
from perdure.stores.protocol import Write

_INHERITED = frozenset((Compaction.kind, ModelChange.kind, ThinkingChange.kind))
_LARGE_BYTES = 131_072
_TURN_ENDS = frozenset((TurnStarted.kind, TurnFinished.kind))
_NONE = -1

_ABOVE_ROOT = Node(StreamId(""), _NONE, _NONE, _NONE, 0, None)


class NotLookedUp(Exception):
    """A fact is missing: the node of an entry, or the branch state that a node references."""

    def __init__(self, *, node: EntryId | None = None, state: EntryId | None = None) -> None:
        super().__init__(node or state)
        self.node = node
        self.state = state


@dataclass(slots=True)
class Facts:
    """Facts that were looked up for one stream.

    A node is None if the stream sees no such tree entry.
    """

    nodes: dict[EntryId, Node | None] = field(default_factory=dict[EntryId, "Node | None"])
    states: dict[EntryId, State] = field(default_factory=dict[EntryId, State])

    def node(self, reference: EntryId) -> Node | None:
        """Return the node of a tree entry that the stream sees. Raises: NotLookedUp."""
        try:
            return self.nodes[reference]
        except KeyError:
            raise NotLookedUp(node=reference) from None

    def state(self, name: EntryId | None) -> State:
        """Return the inherited state of a branch. Raises: NotLookedUp."""
        if name is None:
            return State()
        try:
            return self.states[name]
        except KeyError:
            raise NotLookedUp(state=name) from None


@dataclass(slots=True)
class Columns:
    """The new rows of ``entry``, as arguments of ``perdure.append``; -1 and "" mean NULL.

    Shape: `numbers` has seven numbers per entry: v, at, run, ref, depth, messages and state. `fars`
    and `state_fars` have the ids of entries of other streams; both are empty if no entry refers to
    another stream.
    """

    numbers: Numbers = field(default_factory=Numbers)
    kinds: Texts = field(default_factory=Texts)
    fars: Texts = field(default_factory=Texts)
    state_fars: Texts = field(default_factory=Texts)
    salts: Salts = field(default_factory=Salts)
    digests: Contents = field(default_factory=Contents)
    bodies: Contents = field(default_factory=Contents)

    def add_far(self, fars: Texts, name: str) -> None:
        """Record that the last added entry refers to the entry `name` of another stream."""
        fars.extend([""] * (len(self.kinds) - 1 - len(fars)))
        fars.append(name)


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a commit for one stream, with the stream's state before and after."""

    before: Stream
    after: Stream
    epoch: int
    entries: tuple[Entry, ...]
    columns: Columns
    states: list[tuple[int, State]]
    aliases: list[tuple[bytes, int]]

    @property
    def ends_turn(self) -> bool:
        """Whether an entry starts or ends a turn, so that a stored partial answer is obsolete."""
        return any(entry.kind in _TURN_ENDS for entry in self.entries)


def share_of(stream: Stream, write: Write, at: int, salts: bytes, facts: Facts) -> Share:
    """Return the rows of `write`, in a commit at time `at`; `salts` has one salt per entry.

    Raises: NotLookedUp if a fact is missing, and the errors of ``append_rules.plan_append``.
    """
    facts.nodes.setdefault(stream.state.leaf or EntryId(""), stream.leaf)
    admission = plan_append(stream.state, write, at, lambda id_: facts.node(id_) is not None)
    rows: list[tuple[Entry, bytes | None, bytes]] = []
    lines: list[bytes] = []
    for entry, salt in zip(admission.entries, _each(salts), strict=False):
        digest = body_digest(entry.body, salt)
        lines.append(header_line(entry, digest))
        rows.append((entry, salt, digest))
    chain = commit_hash(stream.state.hash, at, admission.epoch, lines) if lines else b""
    return share_placed(stream, admission, rows, facts, chain)


async def share_off_loop(
    stream: Stream, write: Write, at: int, salts: bytes, facts: Facts
) -> Share:
    """Run `share_of`, on a thread if the digests of large entries take long."""
    if sum([len(new.body) for new in write.entries]) < _LARGE_BYTES:
        return share_of(stream, write, at, salts, facts)
    return await asyncio.to_thread(share_of, stream, write, at, salts, facts)


def share_placed(
    stream: Stream,
    admission: Admission,
    rows: Sequence[tuple[Entry, bytes | None, bytes]],
    facts: Facts,
    chain: bytes,
) -> Share:
    """Return planned entries as rows of `stream`; `rows` are the entries with salts and digests.

    `chain` is the stream's hash after this commit, if the commit has entries.
    Raises: NotLookedUp.
    """
    facts.nodes.setdefault(stream.state.leaf or EntryId(""), stream.leaf)
    growth = _Growth(stream, facts)
    for row in rows:
        growth.take(*row)
    after = stream
    if rows:
        state = state_after(stream.state, admission, chain)
        leaf = growth.leaf(admission.leaf)
        after = Stream(state, leaf, growth.tip, stream.owner, stream.until)
    return Share(
        before=stream,
        after=after,
        epoch=admission.epoch,
        entries=admission.entries,
        columns=growth.columns,
        states=growth.states,
        aliases=_aliases(admission),
    )


def _aliases(admission: Admission) -> list[tuple[bytes, int]]:
    """Return the name and seq of each alias; if a name occurs twice, return its last seq."""
    named = {alias: int(id_.rpartition("/")[2]) for alias, id_ in admission.aliases}
    return [(alias.encode(), seq) for alias, seq in named.items()]


def _each(salts: bytes) -> Iterable[bytes]:
    return (salts[at : at + SALT_BYTES] for at in range(0, len(salts), SALT_BYTES))


class _Growth:
    """Computes, for each entry of one write in order, the entry's place on its branch."""

    def __init__(self, stream: Stream, facts: Facts) -> None:
        self.tip = stream.tip
        self.columns = Columns()
        self.states: list[tuple[int, State]] = []
        self._id = stream.state.header.id
        self._prefix = self._id + "/"
        self._facts = facts
        self._new_nodes: dict[EntryId, Node] = {}
        self._new_states: dict[EntryId, State] = {}

    def take(self, entry: Entry, salt: bytes | None, digest: bytes) -> None:
        """Add the row of the next entry."""
        columns = self.columns
        columns.kinds.append(entry.kind)
        columns.salts.append(salt)
        columns.digests.append(digest)
        columns.bodies.append(entry.body)
        if entry.lane == "side":
            ref = self._near(entry.about, columns.fars)
            columns.numbers += (entry.v, entry.at, _NONE, ref, _NONE, _NONE, _NONE)
            return
        ref = self._near(entry.parent_id, columns.fars)
        node = self._node_of_new(entry)
        state = self._near(node.state, columns.state_fars)
        columns.numbers += (entry.v, entry.at, node.run, ref, node.depth, node.messages, state)

    def leaf(self, reference: EntryId | None) -> Node | None:
        """Return the node of the leaf `reference`; None if there is no leaf."""
        return None if reference is None else self._node(reference)

    def _node_of_new(self, entry: Entry) -> Node:
        parent = _ABOVE_ROOT if entry.parent_id is None else self._node(entry.parent_id)
        goes_on = parent.stream == self._id and parent.seq == self.tip
        id_, state = entry.id, parent.state
        if entry.kind in _INHERITED:
            self._new_states[id_] = left_behind(self._state(state), state, entry)
            self.states.append((entry.seq, self._new_states[id_]))
            state = id_
        run = parent.run if goes_on else entry.seq
        messages = parent.messages + (entry.kind == MESSAGE)
        node = Node(self._id, entry.seq, run, parent.depth + 1, messages, state)
        self._new_nodes[id_] = node
        self.tip = entry.seq
        return node

    def _near(self, reference: EntryId | None, fars: Texts) -> int:
        """Return the seq of `reference` if it is an entry of this stream; otherwise -1.

        If `reference` is an entry of another stream, the id of that entry is added to `fars`.
        """
        if reference is None:
            return _NONE
        if reference.startswith(self._prefix):
            return int(reference[len(self._prefix) :])
        self.columns.add_far(fars, reference)
        return _NONE

    def _node(self, reference: EntryId) -> Node:
        node = self._new_nodes.get(reference) or self._facts.node(reference)
        if node is None:
            raise CorruptLog(self._id, _NONE, f"the tree entry {reference} is gone")
        return node

    def _state(self, name: EntryId | None) -> State:
        known = None if name is None else self._new_states.get(name)
        return known or self._facts.state(name)


def left_behind(inherited: State, name: EntryId | None, entry: Entry) -> State:
    """Return the branch state after `entry`; `name` identifies the inherited state."""
    if entry.kind == Compaction.kind:
        return inherited._replace(compaction=entry.id, before=name)
    if entry.kind == ModelChange.kind:
        return inherited._replace(model=entry.id)
    return inherited._replace(thinking=entry.id)
