"""The slots and permits of limits, tested as SQL on a real server and in real processes."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from perdure import Store
from perdure.client.cluster.runner import cluster_of
from perdure.stores.cluster.limits import Limit, LimitService, Slot, slot_id
from tests.fakes.processes import child
from tests.fakes.workers import READY_S, until

pytestmark = pytest.mark.full_only

Connection = psycopg.Connection[tuple[Any, ...]]

P, Q, M, N = "provider:p", "provider:q", "model:p:m", "model:p:n"

OF_A, OF_B = ("namespace:a", M, P), ("namespace:b", M, P)

_REGISTER = """
INSERT INTO perdure.worker (id, owner, version, protocol, namespaces, agents, slots)
VALUES (%s, %s, '', 2, '{}', '{}', 1)
"""

LOOP = Path(__file__).parent / "children" / "limit_loop.py"


@pytest.fixture(autouse=True)
async def clean(store: Store, address: str) -> AsyncIterator[None]:
    """Register workers that never report, and remove limits and workers after the test."""
    with psycopg.connect(address, autocommit=True) as db:
        for worker in ("one", "two", "busy"):
            db.execute(_REGISTER, (worker, worker))
        yield
        db.execute("DELETE FROM perdure.worker")
        db.execute("DELETE FROM perdure.work_share")
        db.execute("DELETE FROM perdure.work_limit")


def of(store: Store) -> LimitService:
    return cluster_of(store.backend).limits


def slot(id: str, subjects: Sequence[str], *, running: bool = False) -> Slot:
    namespace = subjects[0].removeprefix("namespace:")
    return Slot(id, namespace, tuple(subjects), running)


async def test_slots_under_another_limit_do_not_affect_the_order_of_grants(
    store: Store, address: str
) -> None:
    """The order of grants depends only on slots and grants under the shared limit."""
    await of(store).set_limit(Limit(subject=P, turns=1))
    await of(store).set_limit(Limit(subject=Q, turns=100))
    elsewhere = [slot(f"q{n}", ("namespace:a", "model:q:m", Q)) for n in range(5)]
    ours = [slot(f"a{n}", OF_A) for n in range(9)]
    theirs = [slot(f"b{n}", OF_B) for n in range(9)]
    order: list[str] = []
    with psycopg.connect(address, autocommit=True) as db:
        for number in range(10):
            elsewhere.append(slot(f"more{number}", ("namespace:a", "model:q:m", Q)))
            first = await of(store).sync_slots("one", [*elsewhere, *ours])
            assert {each.id for each in elsewhere} <= first
            await of(store).sync_slots("two", theirs)
            ((granted,),) = db.execute(
                "SELECT id FROM perdure.work_slot "
                "WHERE granted_at IS NOT NULL AND 'provider:p' = ANY(subjects)"
            ).fetchall()
            order.append(granted[0])
            ours = [each for each in ours if each.id != granted]
            theirs = [each for each in theirs if each.id != granted]
    assert order == ["a", "b"] * 5


async def test_next_slot_goes_to_the_namespace_with_the_fewest_slots(store: Store) -> None:
    await of(store).set_limit(Limit(subject=M, turns=3))
    many = [slot(f"a{n}", OF_A) for n in range(5)]
    assert await of(store).sync_slots("one", many) == {"a0", "a1", "a2"}
    assert await of(store).sync_slots("two", [slot("b0", OF_B)]) == set()
    assert await of(store).sync_slots("one", many[1:]) == {"a1", "a2"}
    assert await of(store).sync_slots("two", [slot("b0", OF_B)]) == {"b0"}


async def test_slots_of_one_namespace_are_granted_oldest_first(store: Store) -> None:
    await of(store).set_limit(Limit(subject="namespace:a", turns=1))
    await of(store).set_limit(Limit(subject=P, turns=9))
    other = ("namespace:a", "model:q:m", Q)
    left = [slot("0", OF_A), slot("1", other), slot("2", OF_A), slot("3", other)]
    while left:
        assert await of(store).sync_slots("one", left) == {left[0].id}
        left = left[1:]


async def test_running_turns_keep_their_slots_even_over_the_limit(
    store: Store, address: str
) -> None:
    await of(store).set_limit(Limit(subject=P, turns=1))
    running = [slot(f"r{n}", OF_A, running=True) for n in range(3)]
    assert await of(store).sync_slots("one", running) == {"r0", "r1", "r2"}
    assert await of(store).sync_slots("two", [slot("b", OF_B)]) == set()
    with psycopg.connect(address, autocommit=True) as db:
        db.execute("DELETE FROM perdure.work_slot WHERE worker = 'one'")
    assert await of(store).sync_slots("one", running) == {"r0", "r1", "r2"}
    assert await of(store).sync_slots("two", [slot("b", OF_B)]) == set()
    await of(store).sync_slots("one", [])
    assert await of(store).sync_slots("two", [slot("b", OF_B)]) == {"b"}


async def test_dead_worker_loses_its_granted_slots(store: Store, address: str) -> None:
    await of(store).set_limit(Limit(subject=P, turns=1))
    assert await of(store).sync_slots("one", [slot("a", OF_A)]) == {"a"}
    with psycopg.connect(address, autocommit=True) as db:
        db.execute("UPDATE perdure.worker SET state = 'dead', died_at = now() WHERE id = 'one'")
    assert await of(store).sync_slots("one", [slot("a", OF_A)]) == set()
    assert await of(store).sync_slots("two", [slot("b", OF_B)]) == {"b"}


async def test_slot_sync_without_a_change_writes_nothing(store: Store, address: str) -> None:
    await of(store).set_limit(Limit(subject=P, turns=1))
    slots = [slot(f"a{n}", OF_A) for n in range(50)]
    await of(store).sync_slots("one", slots)
    with psycopg.connect(address, autocommit=True) as db:
        rows = "SELECT xmin::text, xmax::text, id FROM perdure.work_slot ORDER BY id"
        before = db.execute(rows).fetchall()
        for _ in range(5):
            assert len(await of(store).sync_slots("one", slots)) == 1
        assert db.execute(rows).fetchall() == before


@pytest.mark.all_only
async def test_stopped_process_does_not_hold_the_lock_for_granting_slots(
    store: Store, address: str
) -> None:
    """A process requests 1 slot and 120 slots in turn, and is stopped at 200 random moments."""
    await of(store).set_limit(Limit(subject=P, turns=1))
    draw = random.Random(19)
    async with looping(address, "slots", *OF_B) as busy:
        with psycopg.connect(address, autocommit=True) as db:

            async def is_free() -> bool:
                row = db.execute(
                    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' "
                    "AND classid = 20585 AND granted"
                ).fetchone()
                return row == (0,)

            for number in range(200):
                await asyncio.sleep(draw.random() * 0.02)
                os.kill(busy, signal.SIGSTOP)
                await until(is_free)
                found = await of(store).sync_slots("one", [slot(f"a{number}", OF_A)])
                assert found <= {f"a{number}"}
                os.kill(busy, signal.SIGCONT)
            row = db.execute("SELECT count(*) FROM perdure.work_share").fetchone()
            assert row is not None
            assert row[0] == 2  # both were granted slots: the test was about something


@pytest.mark.all_only
async def test_stopped_process_never_blocks_the_queue_places_of_other_processes(
    store: Store, address: str
) -> None:
    """A process that takes and releases places in a loop is stopped at 100 random moments."""
    await of(store).set_limit(Limit(subject="namespace:default", waiting=5))
    draw = random.Random(77)
    async with looping(address, "places") as busy:
        for _ in range(100):
            await asyncio.sleep(draw.random() * 0.02)
            os.kill(busy, signal.SIGSTOP)
            with psycopg.connect(address, autocommit=True) as db:
                db.execute("UPDATE perdure.work_place SET taken_at = '-infinity'")
            async with asyncio.timeout(60), of(store).room() as key:
                assert key is not None
            os.kill(busy, signal.SIGCONT)


async def test_slots_of_a_concurrently_removed_worker_cause_no_deadlock(
    store: Store, address: str
) -> None:
    await of(store).set_limit(Limit(subject=P, turns=1))
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    async with looping(address, "slots", *OF_B) as busy:
        with psycopg.connect(address, autocommit=True) as db:

            def is_granted() -> bool:
                return db.execute("SELECT FROM perdure.work_share").rowcount == 1

            async with asyncio.timeout(READY_S):
                for number in itertools.count():  # on a busy machine, it may begin late
                    if number >= 200 and is_granted():
                        break
                    db.execute("DELETE FROM perdure.worker WHERE id = 'busy'")
                    db.execute(_REGISTER, ("busy", "busy"))
                    await asyncio.sleep(0.002)
            os.kill(busy, 0)  # it has not ended
            assert db.execute(deadlocks).fetchone() == (0,)


async def test_at_most_a_hundred_free_slots_are_granted_per_call(store: Store) -> None:
    await of(store).set_limit(Limit(subject=P, turns=250))
    slots = [slot(f"a{n:03}", OF_A) for n in range(260)]
    counts = [len(await of(store).sync_slots("one", slots)) for _ in range(4)]
    assert counts == [100, 200, 250, 250]


@asynccontextmanager
async def looping(address: str, what: str, *subjects: str) -> AsyncGenerator[int]:
    """Yield the id of a process that uses `what` in a loop; kill the process at the end."""
    with ExitStack() as stack:
        made = child(LOOP, address, what, *subjects)
        yield (await asyncio.to_thread(stack.enter_context, made)).pid


_TRACE = """
CREATE TABLE permit (subject text, at timestamptz);
CREATE FUNCTION trace() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF new.sent_at IS DISTINCT FROM old.sent_at THEN
        INSERT INTO public.permit VALUES (new.subject, new.sent_at);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER traced AFTER UPDATE ON perdure.work_limit FOR EACH ROW EXECUTE FUNCTION trace();
"""


@pytest.fixture
def permits(store: Store, address: str) -> Iterator[Connection]:
    """A connection to the database, in which a trigger records permits until the test ends."""
    assert store
    with psycopg.connect(address, autocommit=True) as db:
        try:
            db.execute(_TRACE)
            yield db
        finally:
            db.execute("DROP FUNCTION IF EXISTS trace CASCADE")
            db.execute("DROP TABLE IF EXISTS permit")


async def test_requests_of_several_processes_keep_the_minimum_interval_of_every_limit(
    store: Store, address: str, permits: Connection
) -> None:
    """Three processes send requests to two models of a provider. All three have limits.

    A trigger records the permits.
    """
    limits = {P: 1_200, M: 500, N: 900}
    for subject, per_minute in limits.items():
        await of(store).set_limit(Limit(subject=subject, per_minute=per_minute))
    async with (
        looping(address, "permits", *OF_A),
        looping(address, "permits", *OF_B),
        looping(address, "permits", "namespace:b", N, P),
    ):

        async def are_permitted() -> bool:
            return _count(permits, M) >= 8 and _count(permits, N) >= 8

        await until(are_permitted)
        # Setting, removing and setting a limit again permits nothing early.
        for changed in (Limit(subject=M), Limit(subject=M, per_minute=500)):
            await of(store).set_limit(changed)
        before = _count(permits, M)

        async def are_more_permitted() -> bool:
            return _count(permits, M) >= before + 4

        await until(are_more_permitted)
    # A permit has one time. Only without the limit of the model, the provider has one alone.
    alone = permits.execute(
        "SELECT count(*) FROM permit AS m WHERE m.subject <> %s "
        "AND NOT EXISTS (SELECT FROM permit AS p WHERE p.subject = %s AND p.at = m.at)",
        (P, P),
    ).fetchone()
    assert alone == (0,)
    for subject, per_minute in limits.items():
        found = permits.execute(
            "SELECT at FROM permit WHERE subject = %s ORDER BY at", (subject,)
        ).fetchall()
        for (one,), (other,) in itertools.pairwise(found):
            assert other - one >= timedelta(minutes=1) / per_minute


def _count(db: Connection, subject: str) -> int:
    row = db.execute("SELECT count(*) FROM permit WHERE subject = %s", (subject,)).fetchone()
    assert row is not None
    assert isinstance(row[0], int)
    return row[0]


async def test_raised_rate_limit_allows_the_next_request_immediately(store: Store) -> None:
    await of(store).set_limit(Limit(subject=P, per_minute=1))
    assert await of(store).permit_request(OF_A) == 0
    assert await of(store).permit_request(OF_A) > 30
    await of(store).set_limit(Limit(subject=P, per_minute=1_000_000))
    assert await of(store).permit_request(OF_A) == 0
    await of(store).set_limit(Limit(subject=P, per_minute=1))
    assert await of(store).permit_request(OF_A) > 30


async def test_request_blocked_by_one_rate_limit_does_not_count_for_another_limit(
    store: Store,
) -> None:
    await of(store).set_limit(Limit(subject=M, per_minute=1))
    await of(store).set_limit(Limit(subject=P, per_minute=1_000_000))
    assert await of(store).permit_request(OF_A) == 0
    assert await of(store).permit_request(OF_A) > 30
    assert await of(store).permit_request(("namespace:a", N, P)) == 0


def test_slot_id_contains_neither_worker_id_nor_work_id() -> None:
    id = slot_id("worker", '["default","session",1]')
    assert "session" not in id
    assert id != slot_id("other", '["default","session",1]')
