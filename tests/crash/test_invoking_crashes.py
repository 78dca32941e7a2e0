"""``kill -9`` at every commit and model call of a session that invokes another agent.

After every kill, the child session is opened once and has one turn, and the cost of the child is
included in the total of the parent session."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure.client.agents.session_usage import standing_of
from perdure.client.conversation.lineage import children_of
from perdure.client.store import Store
from perdure.session.codec import body_of
from perdure.session.ids import StreamId
from perdure.session.ledger import ModelFinished, TurnStarted
from tests.crash.children import invoker
from tests.crash.children.invoker import AGENTS, Model
from tests.fakes.forked import preload, run_forked
from tests.fakes.samples import sampled

preload(invoker.__name__)

COMMITS = 8
"""Number of commits of the whole run; the last test checks that there are no more."""


def killed(file: Path, counts: str, dies_at: int) -> bool:
    """Run the parent until it dies or finishes; return whether it died."""
    done = run_forked(invoker.run, str(file), counts, dies_at)
    if done.code not in (0, -9):
        pytest.fail(done.err)
    return done.code == -9


async def spent_in(store: Store, stream: str) -> int:
    """Return the sum of the costs of the calls in the log of `stream` itself."""
    bodies = [body_of(entry) for entry in await store.backend.entries(StreamId(stream))]
    usages = [body.usage for body in bodies if isinstance(body, ModelFinished)]
    return sum(usage.cost_microcents or 0 for usage in usages if usage is not None)


async def is_whole(store: Store) -> None:
    """Check that the child was opened once, ran one turn, and its cost is counted once."""
    (child,) = await children_of(store.backend, StreamId("s"))
    assert [info.id for info in await store.recent(limit=None, scope="all")].count(
        child.info.id
    ) == 1
    assert len(await store.recent(limit=None, scope="all")) == 2
    log = await store.backend.entries(StreamId(child.info.id))
    assert sum(entry.kind == TurnStarted.kind for entry in log) == 1
    below, above = await spent_in(store, child.info.id), await spent_in(store, "s")
    assert (await standing_of(store, "s")).spent.cost_microcents == above + below
    assert (await store.verify()).is_ok


@sampled(
    ("counts", "dies_at"),
    [*[("commit", n) for n in range(1, COMMITS + 1)], *[("call", n) for n in (1, 2, 3)]],
    kind=lambda case: case[0],
    each=4,
)
async def test_killed_invocation_starts_its_child_session_once(
    tmp_path: Path, counts: str, dies_at: int
) -> None:
    file = tmp_path / "s.db"
    assert killed(file, counts, dies_at)
    async with perdure.open(f"sqlite:///{file}") as store:
        runtime = perdure.Runtime(store, AGENTS, models=Model())
        async with runtime:
            chat = await runtime.resume("s")
            turn = chat.turn or (None if await has_answer(store) else chat.send("go"))
            if turn is not None:
                assert (await turn).text == "so it is"
        await is_whole(store)


async def has_answer(store: Store) -> bool:
    """Return whether the session has its final answer."""
    session = await store.open("s")
    messages = await session.messages(last=1)
    return bool(messages) and messages[-1].text == "so it is"


async def test_planned_kills_cover_every_commit_of_an_invocation(tmp_path: Path) -> None:
    assert not killed(tmp_path / "a.db", "commit", 0)
    assert killed(tmp_path / "b.db", "commit", COMMITS)
    assert not killed(tmp_path / "c.db", "commit", COMMITS + 1)
