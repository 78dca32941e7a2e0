"""A followed window equals the window in the log, after any appends to the session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from perdure.client.session import Session
from perdure.engine.windows import FollowedWindow
from perdure.errors import LeaseHeld, TurnOpen
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import Compaction, Custom, ModelChange
from perdure.session.ledger import TurnFinished, TurnStarted
from perdure.session.messages import Message, user
from perdure.session.notes import Adopted, Queued
from perdure.stores.protocol import Commit, Lease, Write
from tests.fakes.chats import Stage
from tests.fakes.followed import assert_followed
from tests.fakes.random_logs import messages

S = StreamId("s")


class Course:
    """A session, its events, and a window that follows the session."""

    def __init__(self, stage: Stage, session: Session) -> None:
        self.stage = stage
        self.session = session
        self.followed = FollowedWindow(stage.memory, S)
        self.seen = -1
        self.lease: Lease | None = None
        self.waiting: list[Entry] = []

    async def follow(self) -> None:
        added = await self.stage.memory.entries(S, after=self.seen)
        self.seen += len(added)
        self.waiting += [entry for entry in added if entry.kind == Queued.kind]
        self.followed.follow(added)

    async def lead(self, *entries: NewEntry) -> None:
        """Append `entries` with the lease of the turn's owner."""
        assert self.lease is not None
        write = Write(stream=S, entries=entries, lease=self.lease)
        await self.stage.memory.commit(Commit(writes=(write,), at=0))

    # What can happen -------------------------------------------------------------------------

    async def say(self, message: Message, at: int) -> None:
        await self.session.append(message)

    async def answer(self, message: Message, at: int) -> None:
        if self.lease is not None:
            await self.lead(new_tree(message))

    async def begin(self, message: Message, at: int) -> None:
        if self.lease is None:
            self.lease = await self.stage.memory.acquire_lease(S, "one", 1_000)
            await self.lead(new_side(TurnStarted(1, "a")), new_tree(user("go")))

    async def take_over(self, message: Message, at: int) -> None:
        if self.lease is not None:
            self.lease = await self.stage.memory.acquire_lease(
                S, "two", 1_000, dead_owner=self.lease.owner
            )

    async def adopt(self, message: Message, at: int) -> None:
        if self.lease is not None and self.waiting:
            queued = self.waiting.pop(0)
            body = msgspec.json.decode(queued.body, type=Queued)
            entry = NewEntry(body.entry_kind, bytes(body.entry_body), body.entry_v)
            await self.lead(entry, new_side(Adopted(EntryId(f"s/{self.seen + 1}")), queued.id))

    async def finish(self, message: Message, at: int) -> None:
        if self.lease is not None:
            await self.lead(new_side(TurnFinished("stop")))
            await self.stage.memory.release_lease(self.lease)
            self.lease = None

    async def navigate(self, message: Message, at: int) -> None:
        target = await self.place(at)
        await self.session.branch(target)

    async def compact(self, message: Message, at: int) -> None:
        await self.session.append(Compaction("So far.", first_kept=await self.place(at)))

    async def uncompact(self, message: Message, at: int) -> None:
        tree = await self.stage.memory.tree(S)
        found = [entry for entry in tree if entry.kind == Compaction.kind]
        if found:
            await self.session.uncompact(found[at % len(found)])

    async def change(self, message: Message, at: int) -> None:
        await self.session.append(ModelChange("p:m") if at % 2 else Custom("x", at))

    async def pin(self, message: Message, at: int) -> None:
        place = await self.place(at)
        if place is not None:
            await (self.session.pin(place) if at % 3 else self.session.unpin(place))

    async def place(self, at: int) -> EntryId | None:
        tree = await self.stage.memory.tree(S)
        return tree[at % len(tree)].id if tree and at % 11 else None


Happening = Callable[[Course, Message, int], Awaitable[None]]
HAPPENINGS: tuple[Happening, ...] = (
    *([Course.say] * 4),
    *([Course.answer] * 6),
    *([Course.begin] * 3),
    *(Course.take_over, Course.adopt, Course.adopt, Course.finish, Course.navigate),
    *(Course.compact, Course.uncompact, Course.change, Course.pin),
)

courses = st.lists(
    st.tuples(st.sampled_from(HAPPENINGS), messages, st.integers(0, 30), st.booleans()),
    max_size=30,
)


@given(courses, st.integers(1, 800))
def test_incrementally_updated_window_equals_a_newly_read_window(
    course: list[tuple[Happening, Message, int, bool]], budget: int
) -> None:
    async def run() -> None:
        stage = Stage()
        taken = Course(stage, await stage.store.create(id=S))
        for happens, message, at, is_looked_at in course:
            with suppress(TurnOpen, LeaseHeld):  # the leaf cannot be moved during a turn
                await happens(taken, message, at)
            await taken.follow()
            if is_looked_at:
                await assert_followed(taken.followed, stage.memory, S, budget)
        await assert_followed(taken.followed, stage.memory, S, budget)

    asyncio.run(run())
