"""A turn that is cancelled during the commit of an effect's outcome stores the outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.models.scenario import Scenario
from perdure.models.scripted import ScriptedModel
from perdure.stores.access import cancellation
from perdure.stores.protocol import Commit, CommitResult
from tests.fakes.chats import MODEL, calls, says
from tests.fakes.clock import ManualClock

STEPS = 25
"""A turn is cancelled after each number of rounds below this; a commit in memory takes fewer."""


CASES = [
    *(pytest.param(store, times) for store in ("memory", "sqlite") for times in (1, 5)),
    pytest.param("postgres", 5, marks=pytest.mark.full_only),
    pytest.param("postgres", 1, marks=pytest.mark.all_only),
    *(
        pytest.param(each, 2, marks=pytest.mark.all_only)
        for each in ("memory", "sqlite", "postgres")
    ),
]
"""The stores, and how often a turn is cancelled."""


@pytest.fixture
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "memory":
        yield "memory:"
    elif request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 's.db'}"
    else:
        postgres = request.getfixturevalue("warm_postgres")
        address: str = postgres.take()
        yield address
        postgres.give_back(address)


class Cancelling:
    """Cancels the task of a turn while an outcome of `kind` is committed.

    The task is cancelled several times (`times`). The first cancellation happens `after` rounds of
    the event loop after the commit is called.
    """

    def __init__(self, kind: str, after: int, times: int) -> None:
        self._kind = kind
        self._after = after
        self._times = times
        self._cancelling: asyncio.Task[None] | None = None
        self.turn: asyncio.Task[Any] | None = None

    def wrapped(self, commit: Callable[[Commit], Awaitable[CommitResult]]) -> Any:
        """Return `commit` with the cancellations."""

        async def wrapper(asked: Commit) -> CommitResult:
            kinds = {new.kind for write in asked.writes for new in write.entries}
            if self._cancelling is None and self._kind in kinds:
                self._cancelling = asyncio.ensure_future(self._cancel())
            return await commit(asked)

        return wrapper

    async def _cancel(self) -> None:
        assert self.turn is not None
        for _ in range(self._after):
            await asyncio.sleep(0)
        for _ in range(self._times):
            self.turn.cancel()
            await asyncio.sleep(0)

    async def ended(self) -> None:
        """Wait until all cancellations were requested."""
        assert self._cancelling is not None, f"no commit had a {self._kind}"
        await self._cancelling


@pytest.mark.parametrize(("address", "times"), CASES, indirect=["address"])
@pytest.mark.parametrize("kind", ["model_finished", "tool_finished"])
async def test_tool_outcome_is_stored_despite_cancellation_at_any_step(
    address: str, kind: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid: list[str] = []

    async def pay() -> str:
        paid.append("paid")
        return "paid"

    tool = perdure.tool(effect="external")(pay)
    agent = perdure.Agent("helper", model=MODEL, tools=(tool,))
    lost: dict[int, list[str]] = {}
    cancelled = 0
    async with perdure.open(address) as store:
        for after in range(STEPS):
            scenario = Scenario(name="test", sequence=(says("Well.", calls("pay")), says("done")))
            models = ScriptedModel(scenario, clock=ManualClock())
            runtime = perdure.Runtime(store, [agent], models=models)
            chat = await runtime.start(agent, id=f"s{after}")
            cancelling = Cancelling(kind, after, times)
            with monkeypatch.context() as patched:
                patched.setattr(store.backend, "commit", cancelling.wrapped(store.backend.commit))
                turn = chat.send("go")
                cancelling.turn = turn._task  # pyright: ignore[reportPrivateUsage] - what a program's end cancels
                await turn.settled()
                await cancelling.ended()
            cancelled += cancelling.turn.cancelled()
            session = await store.open(f"s{after}")
            kinds = [entry.kind async for entry in session.entries()]
            if kind not in kinds:
                lost[after] = kinds
        assert (await store.verify()).is_ok
    assert lost == {}
    assert cancelled > 0
    assert len(paid) <= STEPS


async def test_chat_can_be_suspended_although_a_commit_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cancellation, "FINISH_S", 0.05)
    agent = perdure.Agent("helper", model=MODEL)
    scenario = Scenario(name="test", sequence=(says("paid"),))
    is_hanging = asyncio.Event()
    async with perdure.open("memory:") as store:
        runtime = perdure.Runtime(
            store, [agent], models=ScriptedModel(scenario, clock=ManualClock())
        )
        chat = await runtime.start(agent)
        commit = store.backend.commit

        async def hanging(asked: Commit) -> CommitResult:
            if any(new.kind == "model_finished" for each in asked.writes for new in each.entries):
                is_hanging.set()
                await asyncio.Event().wait()
            return await commit(asked)

        monkeypatch.setattr(store.backend, "commit", hanging)
        turn = chat.send("go")
        await is_hanging.wait()
        suspending = asyncio.ensure_future(runtime.suspend())
        await asyncio.wait((suspending,), timeout=60)
        assert suspending.done()
        assert not turn.is_running
