"""The feeds of a flow, read from a store: whole, after a cursor, or page by page."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure.client.flows.feeds import Feeds, RoleFeed, decode_point, encode_point
from perdure.engine.flows.runner import FlowRunner
from perdure.errors import WrongArgument
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import Entry
from perdure.session.flows.feed import FeedItem, FeedPoint
from perdure.session.flows.kinds import (
    FlowCompleted,
    FlowStarted,
    HandoffMade,
    HandoffTarget,
    NodeClaimed,
)
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.ledger import TurnFinished, TurnStarted
from perdure.session.messages import assistant, user
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, CommitResult, Write
from perdure.stores.wakeups import Changes
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.flow_log import FLOW, graph
from tests.fakes.scripted_roles import ScriptedRoles, begun, hand, signal

LINE = graph("owner-intake>build", "build>end", **{"owner-intake": "owner", "end": "owner"})


class Read:
    """A reader that reads the feeds again after every commit, and stores their cursors as text."""

    def __init__(self, feeds: Feeds) -> None:
        self.feeds = feeds
        self.points: dict[str, str] = {}
        self.items: dict[str, dict[str, FeedItem]] = {"owner": {}, "build": {}}

    async def on(self) -> None:
        for role, items in self.items.items():
            point = decode_point(self.points[role]) if role in self.points else None
            point, new = await self.feeds.read(role, point)
            self.points[role] = encode_point(point)
            items.update((item.id, item) for item in new)


class ReadStore(MemoryStore):
    """A store whose feeds are read after every commit."""

    read: Read | None = None

    async def commit(self, commit: Commit) -> CommitResult:
        done = await super().commit(commit)
        if self.read is not None:
            await self.read.on()
        return done


async def ran(tmp_path: Path, kind: type[ReadStore] = ReadStore) -> ReadStore:
    clock = ManualClock()
    store = kind(clock=clock, random=SeededRandom(1))
    script = {
        "owner": [hand(tmp_path, "build", name="plan.md"), signal("forward-pass-closed")],
        "build": ["Nothing.", hand(tmp_path, "end", name="done.md")],
    }
    ground = await begun(store, clock, LINE, tmp_path)
    store.read = Read(Feeds(store, FLOW))
    await FlowRunner(ground, ScriptedRoles(store, clock, script), clock, store.changes).run()
    return store


async def test_incremental_feed_reads_equal_one_complete_read(
    tmp_path: Path,
) -> None:
    store = await ran(tmp_path)
    assert store.read is not None
    for role, items in store.read.items.items():
        _, whole = await Feeds(store, FLOW).read(role)
        assert tuple(items.values()) == whole
        assert await Feeds(store, FLOW).read(role, decode_point(store.read.points[role])) == (
            decode_point(store.read.points[role]),
            (),
        )


class MovingStore(ReadStore):
    """A store that runs an action after each of the first `moves` reads of a log."""

    moves: list[Commit] | None = None

    async def entries(
        self, stream: StreamId, after: int = -1, limit: int | None = None, **chosen: Any
    ) -> list[Entry]:
        found = await super().entries(stream, after, limit, **chosen)
        if self.moves:
            await self.commit(self.moves.pop(0))
        return found


async def test_feed_read_during_commits_misses_no_item() -> None:
    clock = ManualClock()
    store = MovingStore(clock=clock, random=SeededRandom(1))
    session = StreamId(f"{FLOW}__build")
    begun = FlowStarted("p", "/w", "/w/record", LINE, ("owner-intake",))
    writes = (
        Write(stream=FLOW, create=StreamHeader(FLOW, 0, kind="flow"), entries=(new_side(begun),)),
        Write(stream=session, create=StreamHeader(session, 0, origin="role")),
    )
    for write in writes:
        await store.commit(Commit(writes=(write,), at=1))
    lease = await store.acquire_lease(session, "me", 60_000)
    claimed = new_side(NodeClaimed("build", "build", session, "reply", text="go on"))
    turn = (new_side(TurnStarted(1, "build")), new_tree(user("go on")))
    handed = new_side(HandoffMade("build", (HandoffTarget("end", "a.md"),)))
    ended = (new_tree(assistant("Done.")), new_side(TurnFinished("stop")))
    store.moves = [
        Commit(
            writes=(
                Write(stream=FLOW, entries=(of_flow,)),
                Write(stream=session, entries=of_session, lease=lease),
            ),
            at=at,
        )
        for at, of_flow, of_session in ((2, claimed, turn), (3, handed, ended))
    ]
    point, first = await Feeds(store, FLOW).read("build")
    _, rest = await Feeds(store, FLOW).read("build", point)
    _, whole = await Feeds(store, FLOW).read("build")
    assert (*first, *rest) == whole
    assert [item.type for item in whole] == ["activation", "user", "assistant", "handoff"]


async def test_feed_can_be_read_page_by_page(tmp_path: Path) -> None:
    feeds = Feeds(await ran(tmp_path), FLOW)
    whole = await feeds.page("build")
    first = await feeds.page("build", limit=2)
    rest = await feeds.page("build", after=first[-1].id)
    assert (*first, *rest) == whole
    assert [item.type for item in first] == ["activation", "assistant"]


async def test_page_after_unknown_item_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no item 'build_99'"):
        await Feeds(await ran(tmp_path), FLOW).page("build", after="build_99")


async def test_role_that_has_not_started_has_empty_feed(tmp_path: Path) -> None:
    point, items = await Feeds(await ran(tmp_path), FLOW).read("reviewer")
    assert items == ()
    assert (point.role, point.session_seq) == ("reviewer", -1)


def test_feed_position_is_read_back_from_text() -> None:
    point = FeedPoint("owner", count=3, nodes=("plan",))
    assert decode_point(encode_point(point)) == point
    with pytest.raises(ValueError, match="JSON"):
        decode_point("x")


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_pages_of_any_size_give_the_same_feed(tmp_path: Path, limit: int) -> None:
    store = await ran(tmp_path)
    whole = await RoleFeed(store, FLOW, "owner").read()
    read: dict[str, FeedItem] = {}
    cursor: str | None = None
    pages = 0
    while page := await (feed := RoleFeed(store, FLOW, "owner", cursor)).read(limit):
        read.update((item.id, item) for item in page)  # each page in a process of its own
        cursor, pages = feed.cursor, pages + 1
    assert tuple(read.values()) == whole
    assert pages > 1 or limit == 100
    assert await RoleFeed(store, FLOW, "owner", cursor).read() == ()


class SilentStore(ReadStore):
    """A store that never wakes its watchers, like a store whose file was removed."""

    def changes(self, stream: StreamId | None = None) -> Changes:
        return Changes(asyncio.get_running_loop())


async def test_feed_iteration_first_returns_existing_items(tmp_path: Path) -> None:
    store = await ran(tmp_path, SilentStore)
    items = await RoleFeed(store, FLOW, "owner").read()
    following = aiter(RoleFeed(store, FLOW, "owner"))
    assert [await asyncio.wait_for(anext(following), 5) for _ in items] == [*items]


async def test_feed_iteration_ends_when_flow_is_completed(tmp_path: Path) -> None:
    store = await ran(tmp_path)
    flow = FLOW
    followed = asyncio.create_task(collected(RoleFeed(store, flow, "owner")))
    await asyncio.sleep(0)
    write = Write(stream=flow, entries=(new_side(FlowCompleted()),))
    await store.commit(Commit(writes=(write,), at=2_000_000_000_000))
    items = await asyncio.wait_for(followed, 60)
    assert tuple(items) == await RoleFeed(store, flow, "owner").read()


async def test_feed_iteration_ends_when_store_is_closed(tmp_path: Path) -> None:
    store = await ran(tmp_path)
    whole = await RoleFeed(store, FLOW, "owner").read()
    following = asyncio.create_task(collected(RoleFeed(store, FLOW, "owner")))
    for _ in range(500):
        await asyncio.sleep(0)  # it waits for what follows
    await store.close()
    assert tuple(await asyncio.wait_for(following, 60)) == whole


async def collected(feed: RoleFeed) -> list[FeedItem]:
    return [item async for item in feed]


async def test_cursor_of_another_role_is_rejected(tmp_path: Path) -> None:
    store = await ran(tmp_path)
    build = RoleFeed(store, FLOW, "build").cursor
    for cursor, told in ((build, "of the feed of build"), ("owner_3", "is no cursor")):
        with pytest.raises(WrongArgument, match=told):
            RoleFeed(store, FLOW, "owner", cursor)
    with pytest.raises(WrongArgument, match="at least 1"):
        await RoleFeed(store, FLOW, "owner").read(0)
