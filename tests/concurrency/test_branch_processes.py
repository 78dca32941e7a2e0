"""Compare-and-set of the leaf between processes: no entry is popped twice, none gets lost."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

import perdure
from perdure import user
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.errors import IdempotencyMismatch, LeafConflict
from tests.concurrency.children.poppers import S, work
from tests.fakes.forked import preload
from tests.fakes.postgres import PostgresServer
from tests.fakes.processes import child
from tests.fakes.samples import with_larger

preload("perdure.stores.postgres.store")

CHILD = Path(__file__).parent / "children" / "poppers.py"
ITEMS = 30
CALLS_OF_EACH = pytest.mark.parametrize("each", with_larger(8, 20))

STORES = ["memory", "sqlite", "jsonl", "postgres"]


@pytest.fixture(params=STORES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("warm_postgres")
        taken = server.take()
        yield taken
        server.give_back(taken)
        return
    addresses = {
        "memory": "memory:",
        "sqlite": f"sqlite:///{tmp_path / 'store.db'}",
        "jsonl": f"jsonl:///{tmp_path / 'sessions'}",
    }
    yield addresses[str(request.param)]


async def run_all(store: Store, address: str, roles: Sequence[str], count: int) -> list[list[str]]:
    """Run each role in a process (in a task if the store is in memory); return the reports."""
    if address == "memory:":
        named = enumerate(roles)
        return await asyncio.gather(*(work(store, role, f"w{n}", count) for n, role in named))

    def run() -> list[list[str]]:
        with ExitStack() as stack:
            children = [
                stack.enter_context(child(CHILD, role, address, f"w{number}", count))
                for number, role in enumerate(roles)
            ]
            for each in children:
                each.tell()
            return [each.last_line().split() for each in children]

    return await asyncio.to_thread(run)


async def problems_of(
    store: Store, address: str, roles: Sequence[str], count: int
) -> tuple[int, list[str]]:
    """Return the number of acknowledged entries, and the entries lost or popped twice."""
    session = await store.create(id=S)
    first = [entry.id for entry in await session.append(*(user(f"{n}") for n in range(ITEMS)))]
    reports = await run_all(store, address, roles, count)
    pushed = [id for role, ids in zip(roles, reports, strict=True) if role == "push" for id in ids]
    popped = [id for role, ids in zip(roles, reports, strict=True) if role != "push" for id in ids]
    kept = [entry.id for entry in await session.path()]
    seen = Counter([*popped, *kept])
    everything = [*first, *pushed]
    wrong = [f"{id}: {seen[id]} times" for id in everything if seen[id] != 1]
    figures = f"{len(everything)} entries, {len(popped)} popped, {len(wrong)} lost or popped twice"
    sys.stdout.write(f"\n{address.partition(':')[0]}: {figures}\n")
    if "blind" not in roles:  # blind pops may lose so many entries that none is left to pop
        assert len(popped) == count * sum(role != "push" for role in roles)
    return len(everything), wrong


@CALLS_OF_EACH
async def test_pops_and_appends_of_several_processes_lose_no_item(address: str, each: int) -> None:
    async with perdure.open(address, durability="normal") as store:
        _, wrong = await problems_of(store, address, ["pop", "pop", "push", "push"], each)
    assert wrong == []


@CALLS_OF_EACH
async def test_repeated_pop_with_one_idempotency_key_removes_one_item(
    address: str, each: int
) -> None:
    async with perdure.open(address, durability="normal") as store:
        _, wrong = await problems_of(store, address, ["same", "push", "push"], each)
    assert wrong == []


@pytest.mark.parametrize("address", ["memory", "sqlite"], indirect=True)
async def test_check_for_conflicts_detects_unsafe_concurrent_pops(address: str) -> None:
    """Prove that `problems_of`, which the two tests above use, detects conflicts."""
    async with perdure.open(address, durability="normal") as store:
        _, wrong = await problems_of(store, address, ["blind", "blind", "push", "push"], 20)
    assert wrong != []


async def started(store: Store) -> Session:
    session = await store.create(id=S)
    await session.append(user("a"), user("b"), user("c"))
    return session


async def test_branch_from_an_unexpected_leaf_is_rejected_without_changes(address: str) -> None:
    async with perdure.open(address) as store:
        session = await started(store)
        other = await store.open(S)
        for target in ("shared/0", "shared/1", "shared/2", None):
            for expected in ("shared/0", "shared/1", None):
                with pytest.raises(LeafConflict) as refused:
                    await other.branch(target, expected_leaf=expected)
                assert (refused.value.expected, refused.value.actual) == (expected, "shared/2")
                with pytest.raises(LeafConflict):
                    await other.branch_with_summary(target, "left", expected_leaf=expected)
        assert (await session.info()).entries == 3
        assert await session.branch("shared/2", expected_leaf="shared/2") is None
        assert await session.branch(None, expected_leaf="shared/2") is not None
        assert await session.branch("shared/1", expected_leaf=None) is not None
        told = await session.branch_with_summary("shared/0", "b is left", expected_leaf="shared/1")
        assert (session.leaf, told.parent_id) == (told.id, "shared/0")


async def test_branch_repeated_with_an_idempotency_key_returns_the_first_entry(
    address: str,
) -> None:
    async with perdure.open(address) as store:
        session = await started(store)
        moved = await session.branch("shared/0", expected_leaf="shared/2", idempotency_key="k")
        again = await session.branch("shared/0", expected_leaf="shared/2", idempotency_key="k")
        assert moved == again
        assert (await session.info()).entries == 4
        with pytest.raises(IdempotencyMismatch):
            await session.branch("shared/1", expected_leaf="shared/2", idempotency_key="k")
        with pytest.raises(LeafConflict):
            await session.branch("shared/1", expected_leaf="shared/2", idempotency_key="other")


async def test_unsaved_session_rejects_a_branch_with_a_wrong_expected_leaf(address: str) -> None:
    async with perdure.open(address) as store:
        draft = await store.create(lazy=True)
        first, second = await draft.append(user("a"), user("b"))
        with pytest.raises(LeafConflict):
            await draft.branch(None, expected_leaf=first)
        assert await draft.branch(first, expected_leaf=second) is not None


async def test_entry_appended_during_the_hook_of_a_refused_branch_call_stays(address: str) -> None:
    async with perdure.open(address) as store:
        session = await started(store)
        other = await store.open(S)

        async def summarise(_: object) -> str:
            await other.append(user("late"))
            return "what was left"

        store.hooks.on("session_before_tree", summarise)
        asking = await store.open(S)
        with pytest.raises(LeafConflict):
            await asking.branch("shared/0", expected_leaf="shared/2")
        assert [m.text for m in await session.messages()] == ["a", "b", "c", "late"]


def test_branch_call_of_the_blocking_interface_checks_the_expected_leaf(tmp_path: Path) -> None:
    with perdure.blocking.open(f"sqlite:///{tmp_path / 'store.db'}") as store:
        session = store.create(id=S)
        first, second = session.append(user("a"), user("b"))
        with pytest.raises(LeafConflict):
            session.branch(None, expected_leaf=first)
        assert session.branch(first, expected_leaf=second) is not None
