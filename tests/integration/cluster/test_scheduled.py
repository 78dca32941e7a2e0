"""Scheduled messages that workers send at their due time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import perdure
from perdure import Runtime, Store
from perdure.client.cluster.status import cluster_status
from perdure.errors import TurnSuspended
from tests.fakes.worker_program import HELPER
from tests.fakes.workers import effect_of, effects, until, workers

pytestmark = pytest.mark.full_only


DELAYS_MS = (1_500, 6_000, 24_000)
"""Delays until a message is due: if a busy machine misses one, the test tries the next."""


def soon(ms: int) -> int:
    return round(time.time() * 1000) + ms


@pytest.mark.all_only
async def test_scheduled_message_is_sent_once_by_workers_when_due(
    store: Store, address: str, folder: Path
) -> None:
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        chat, gone = await runtime.start(HELPER), await runtime.start(HELPER)
        call = f'/tool once {{"text": "{gone.id}", "seconds": 0}}'
        left = gone.send(call, at=soon(0))
        await left.stored()
        tomorrow = chat.send("tomorrow", at=soon(86_400_000))
        await tomorrow.stored()

        async def is_counted() -> bool:  # once it is queued, which follows the commit
            status = await cluster_status(store.backend, store.outside.clock)
            return [each.scheduled for each in status.queues if each.agent == "helper"] in (
                [1],
                [2],
            )

        await until(is_counted)
    with pytest.raises(TurnSuspended):  # its program ended; nobody runs it
        await left
    async with workers(2, address, folder):
        await effect_of(folder, gone.id)
        async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
            again = await runtime.resume(chat.id)
            starts: list[int] = []
            due_at = 0
            for number, delay_ms in enumerate(DELAYS_MS, 1):
                due_at = soon(delay_ms)
                later = again.send("later", at=due_at)
                await later.stored()
                assert "now" in (await again.send("now")).text  # the handle is free meanwhile
                assert "later" in (await later).text
                starts = [entry.at async for entry in chat.session.entries(kind="turn_started")]
                assert len(starts) == 2 * number
                if starts[-2] < due_at:
                    break
            assert starts[-2] < due_at <= starts[-1]
            async with perdure.open(address) as elsewhere:
                (waiting,) = await elsewhere.schedule.list(chat.id)
                assert waiting.message.text == "tomorrow"
                await elsewhere.schedule.cancel(waiting.id)
                assert await elsewhere.schedule.list(chat.id) == []
    assert [text for _, text in effects(folder)].count(gone.id) == 1


async def test_recurring_message_is_planned_by_one_of_many_workers(
    store: Store, address: str, folder: Path
) -> None:
    async with workers(2, address, folder, factory="recurring"):

        async def is_planned() -> bool:
            return any(each.session.startswith("daily-") for each in await store.schedule.list())

        await until(is_planned)
    planned = [each for each in await store.schedule.list() if each.session.startswith("daily-")]
    assert [each.message.text for each in planned] == ["Is the build green?"]
