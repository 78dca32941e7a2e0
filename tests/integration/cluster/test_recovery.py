"""Requests whose work ended without an answer are queued again, a few times."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest

from perdure import Runtime, Store
from perdure.client.cluster.recovery import MAX_ATTEMPTS, Recovery
from perdure.errors import TurnFailed
from tests.fakes.worker_program import HELPER
from tests.fakes.workers import until, workers

pytestmark = pytest.mark.full_only


async def fail_work(address: str, session: str) -> int:
    """Mark the queued work of `session` as failed; return the number of marked items."""
    async with await psycopg.AsyncConnection.connect(address, autocommit=True) as db:
        failed = await db.execute(
            "UPDATE perdure_work.workflow_status SET status = 'ERROR' "
            "WHERE queue_partition_key = %s AND status = 'ENQUEUED'",
            (session,),
        )
        return failed.rowcount


@pytest.fixture
def prepared(address: str, folder: Path) -> None:
    """Let a worker create the schema of the work queue."""
    with workers(1, address, folder):
        pass


@pytest.mark.usefixtures("prepared")
async def test_request_whose_work_failed_is_queued_again_and_answered(
    store: Store, address: str, folder: Path
) -> None:
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        chat = await runtime.start(HELPER)
        turn = chat.send("again")

        async def has_failed() -> bool:
            return await fail_work(address, chat.id) == 1

        await until(has_failed)
        async with workers(1, address, folder):
            assert "again" in (await turn).text


@pytest.mark.all_only
@pytest.mark.usefixtures("prepared")
async def test_request_whose_work_always_fails_is_refused_with_reason(
    store: Store, address: str
) -> None:
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        chat = await runtime.start(HELPER)
        turn = chat.send("never")
        recovery, failed = Recovery(runtime.host), 0
        async with asyncio.timeout(60):
            while turn.is_running:
                failed += await fail_work(address, chat.id)
                await recovery.run()
                await asyncio.sleep(0.05)
        with pytest.raises(TurnFailed, match=f"workers tried {MAX_ATTEMPTS} times") as refused:
            await turn
    assert refused.value.failure == "work_failed"
    assert failed == MAX_ATTEMPTS
