"""Random commits, forks, leaf moves, leases and replays: every backend matches the model."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from perdure.errors import IdempotencyMismatch, LeaseHeld, LeaseLost, PerdureError
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import NewEntry
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import ForkPoint
from perdure.session.kinds import Compaction, ModelChange
from perdure.session.notes import CompactionUndone
from perdure.stores.protocol import Commit, CommitResult, Lease, Write
from perdure.stores.session_store import SessionStore
from tests.conformance.store.backends import Backend
from tests.conformance.store.building import (
    header,
    labelled,
    moved,
    said,
    turn_finished,
    turn_started,
    unknown,
)
from tests.conformance.store.model import Model

T = TypeVar("T")

NUMBERS = st.integers(0, 999)
"""Numbers that select an existing item, modulo the count of such items."""

ENTRIES = st.lists(
    st.tuples(
        st.sampled_from(
            ["say"] * 4
            + ["on", "on", "root", "compact", "undo", "set", "label", "move", "before_root"]
            + ["start", "start", "finish", "finish", "unknown", "wrong_parent"]
        ),
        NUMBERS,
    ),
    max_size=4,
)

NOTE_KINDS = ("label", "queued", "leaf", "turn_started", "turn_finished", "compaction_undone")

TTL_MS = 10_000


class StoreMachine(RuleBasedStateMachine):
    """A machine that gives the same commands to a store, through two handles, and to the model."""

    def __init__(self, backend: Backend) -> None:
        super().__init__()
        self.clock = backend.clock
        self.data = backend.new()
        self.runner = asyncio.Runner()
        self.stores = [self.run(self.data.open()) for _ in range(2)]
        self.model = Model()
        self.leases: list[Lease] = []
        self.keyed: list[tuple[Commit, CommitResult]] = []
        self.can = self.stores[0].capabilities
        self.commit_of(Write(stream=StreamId("s0"), create=header("s0")))

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(call)

    def store(self, number: int = 0) -> SessionStore:
        return self.stores[number % len(self.stores)]

    def stream(self, number: int) -> StreamId:
        """Return one of the streams, preferring new ones."""
        return list(self.model.streams)[-1 - number % min(3, len(self.model.streams))]

    def seen(self, stream: StreamId, number: int) -> EntryId | None:
        """Return a tree entry that the stream sees, or sometimes None."""
        tree = self.model.tree(stream)
        choice = number % (len(tree) + 1)
        return tree[choice].id if choice < len(tree) else None

    def lease(self, stream: StreamId, number: int) -> Lease | None:
        """Return None, or a lease of the stream that another owner might have taken over."""
        leases = [lease for lease in self.leases if lease.stream == stream]
        return [None, *leases, *leases[-1:] * 3][number % (4 + len(leases))] if leases else None

    def new(self, stream: StreamId, kind: str, number: int) -> NewEntry:
        entry = self.seen(stream, number)
        made = {
            "say": said(str(number)),
            "on": said(str(number), entry),
            "root": said(str(number), None),
            "compact": new_tree(Compaction("gist", entry)),
            "undo": new_side(CompactionUndone(), entry),
            "set": new_tree(ModelChange(f"m:{number}")),
            "label": labelled(str(number), entry),
            "move": moved(entry),
            "before_root": moved(None),
            "start": turn_started(number),
            "finish": turn_finished(),
            "unknown": unknown(str(number).encode()),
            "wrong_parent": said("x", EntryId(f"{stream}/{number + 5}")),
        }
        return made[kind]

    def commit_of(self, *writes: Write, number: int = 0, key: str | None = None) -> None:
        """Commit to the store and the model; both must append the same or raise the same error."""
        commit = Commit(writes=writes, at=self.clock.now_ms(), idempotency_key=key)
        store = self.store(number)
        try:
            model, appended = self.model.after(commit)
        except PerdureError as refusal:
            with pytest.raises(type(refusal)):
                self.run(store.commit(commit))
            return
        committed = self.run(store.commit(commit))
        assert committed == CommitResult(appended)
        self.model = model
        if key is not None:
            self.keyed.append((commit, committed))

    # ------------------------------------------------------------ commands

    @rule(number=NUMBERS, entries=ENTRIES, which=NUMBERS, is_keyed=st.booleans())
    def append(
        self, number: int, entries: list[tuple[str, int]], which: int, is_keyed: bool
    ) -> None:
        stream = self.stream(number)
        new = tuple(self.new(stream, *one) for one in entries)
        head = self.model.streams[stream].head
        expected = {0: head, 1: head - 1}.get(which % 8) if new else head
        write = Write(
            stream=stream, entries=new, expected_head=expected, lease=self.lease(stream, which)
        )
        key = f"key {len(self.keyed)}" if is_keyed else None
        self.commit_of(write, number=number, key=key)

    @precondition(lambda self: self.can.multi_stream_commit)
    @rule(number=NUMBERS, first=ENTRIES, second=ENTRIES, which=NUMBERS)
    def append_to_two(
        self, number: int, first: list[tuple[str, int]], second: list[tuple[str, int]], which: int
    ) -> None:
        left, right = self.stream(number), self.stream(number + 1)
        new = StreamId(f"s{len(self.model.streams)}")
        writes = [Write(stream=new, create=header(new), entries=(said("new"),))] * (which % 2)
        for stream, entries in {left: first, right: second}.items():
            made = tuple(self.new(stream, *one) for one in entries) or (said("x"),)
            writes.append(Write(stream=stream, entries=made, lease=self.lease(stream, which // 2)))
        self.commit_of(*writes, number=number)

    @precondition(lambda self: self.can.pointer_fork)
    @rule(number=NUMBERS, leaf=NUMBERS, scope=st.sampled_from(["tree", "path"]), entries=ENTRIES)
    def fork(self, number: int, leaf: int, scope: Any, entries: list[tuple[str, int]]) -> None:
        origin = self.stream(number)
        name = f"s{len(self.model.streams)}"
        head = self.model.streams[origin].head
        point = ForkPoint(origin, self.seen(origin, leaf), head, scope)
        texts = tuple(said(text) for _, text in zip(entries, "abcd", strict=False))
        write = Write(stream=StreamId(name), create=header(name, fork=point), entries=texts)
        self.commit_of(write, number=number)

    @rule(number=NUMBERS)
    def acquire(self, number: int) -> None:
        stream = self.stream(number)
        known = self.model.streams[stream]
        if known.until > self.clock.now_ms():
            with pytest.raises(LeaseHeld):
                self.run(self.store(number).acquire_lease(stream, "me", TTL_MS))
            return
        lease = self.run(self.store(number).acquire_lease(stream, "me", TTL_MS))
        known.epoch += 1
        known.until = self.clock.now_ms() + TTL_MS
        assert lease == Lease(stream, "me", known.epoch, known.until)
        self.leases.append(lease)

    @precondition(lambda self: self.leases)
    @rule(number=NUMBERS, which=NUMBERS, is_release=st.booleans())
    def renew_or_release(self, number: int, which: int, is_release: bool) -> None:
        lease = self.leases[-1 - which % min(3, len(self.leases))]
        known = self.model.streams[lease.stream]
        is_current = lease.epoch == known.epoch
        if is_release:
            self.run(self.store(number).release_lease(lease))
            known.until = 0 if is_current else known.until
        elif is_current:
            known.until = self.clock.now_ms() + TTL_MS
            renewed = self.run(self.store(number).renew_lease(lease, TTL_MS))
            assert renewed == msgspec.structs.replace(lease, until=known.until)
        else:
            with pytest.raises(LeaseLost):
                self.run(self.store(number).renew_lease(lease, TTL_MS))

    @rule(seconds=st.integers(1, 15))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: self.keyed)
    @rule(number=NUMBERS, which=NUMBERS, is_other=st.booleans())
    def replay(self, number: int, which: int, is_other: bool) -> None:
        commit, committed = self.keyed[which % len(self.keyed)]
        store = self.store(number)
        if is_other:
            write = Write(stream=commit.writes[0].stream, entries=(unknown(b'"other"'),))
            other = msgspec.structs.replace(commit, writes=(write,))
            with pytest.raises(IdempotencyMismatch):
                self.run(store.commit(other))
            return
        again = self.run(store.commit(commit))
        assert again == CommitResult(committed.entries, is_replay=True)

    @precondition(lambda self: not self.can.multi_stream_commit)
    @rule()
    def create(self) -> None:
        new = StreamId(f"s{len(self.model.streams)}")
        self.commit_of(Write(stream=new, create=header(new), entries=(said("new"),)))

    # ------------------------------------------------------------ what must be so

    @invariant()
    def every_stream_stands_where_the_model_does(self) -> None:
        for stream, known in self.model.streams.items():
            state = self.run(self.store(1).state(stream))
            assert (state.header, state.info) == (known.header, known.info)
            assert (state.head, state.leaf, state.open_turn, state.epoch) == (
                known.head,
                known.leaf,
                known.open_turn,
                known.epoch,
            )

    def teardown(self) -> None:
        try:
            self.everything_reads_as_in_the_model()
        finally:
            self.run(self.data.close())
            self.runner.close()

    def everything_reads_as_in_the_model(self) -> None:
        store, model = self.store(), self.model
        feed = self.run(store.feed(0, 10_000))
        assert [item.entry for item in feed] == model.log
        for stream, known in model.streams.items():
            tree = model.tree(stream)
            assert self.run(store.entries(stream)) == known.entries
            assert self.run(store.tree(stream)) == tree
            assert self.run(store.notes(stream, NOTE_KINDS)) == model.notes(stream, NOTE_KINDS)
            for leaf in (None, *(entry.id for entry in tree[-12:])):
                assert self.run(store.branch(stream, leaf)) == model.branch(stream, leaf)
                window = self.run(store.context_window(stream, leaf))
                assert window == model.window(stream, leaf)
        verification = self.run(store.maintenance.verify())
        assert verification.problems == ()
        assert (verification.streams, verification.entries) == (len(model.streams), len(model.log))


@pytest.mark.hypothesis
def test_store_agrees_with_a_reference_model_after_random_commands(backend: Backend) -> None:
    class Machine(StoreMachine):
        def __init__(self) -> None:
            super().__init__(backend)

    share = 10 if backend.name == "postgres" else 4  # each look at it is a round trip
    examples = max(3, settings().max_examples // share)
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=examples, stateful_step_count=30)
    )
