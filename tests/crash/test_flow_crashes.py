"""``kill -9`` at every commit of whole flows, and two processes that run one flow concurrently."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TypeAlias

import msgspec
import pytest

import perdure
from perdure.client.store import Store
from perdure.session.codec import body_of
from perdure.session.flows.kinds import (
    HandoffDeclined,
    HandoffMade,
    NodeClaimed,
    RoleConfigured,
    SelectorOpened,
)
from perdure.session.flows.run import FlowRun
from perdure.session.ids import StreamId
from perdure.session.kinds import Compaction
from tests.crash.children import flow
from tests.fakes.forked import Forked, forked, preload
from tests.fakes.mortal_flows import FLOW, GRAPHS, FlowPlan, Kind, finished
from tests.fakes.samples import sampled
from tests.fakes.two_tools import Death, Moment

preload(flow.__name__)

COMMITS: dict[Kind, int] = {"two": 15, "three": 31, "chosen": 13, "declined": 36}
"""Number of commits of the whole flow; each kill comes before or after one of them."""

Whole: TypeAlias = tuple[FlowRun, list[object], dict[str, list[str]]]
"""The end of a flow, its choices, claims and handoffs, and its messages."""

DEATHS: list[tuple[Kind, Moment, int]] = [
    *[("two", "before_commit", n) for n in range(1, COMMITS["two"] + 1)],
    *[("two", "after_commit", n) for n in range(1, COMMITS["two"] + 1)],
    *[("three", "after_commit", n) for n in range(1, COMMITS["three"] + 1)],
    *[("declined", "before_commit", n) for n in range(1, COMMITS["declined"] + 1)],
    *[("declined", "after_commit", n) for n in range(1, COMMITS["declined"] + 1)],
    *[("chosen", "before_commit", n) for n in range(1, COMMITS["chosen"] + 1)],
    *[("chosen", "after_commit", n) for n in range(1, COMMITS["chosen"] + 1)],
]


def commits_of(running: Forked, code: int) -> int:
    """Return the number of commits a child reported before it exited with the expected `code`."""
    done = running.ended()
    assert done.code == code, done.err
    return len(done.out.splitlines())


def outcome(run: FlowRun) -> FlowRun:
    """Return the end of a flow without the paths of its files."""
    return msgspec.structs.replace(run, workspace_root="", record_folder_path="")


async def story(store: Store) -> list[object]:
    """Return every choice, claim and handoff of the flow, in order."""
    bodies = [body_of(entry) for entry in await store.backend.entries(StreamId(FLOW))]
    kinds = NodeClaimed | HandoffMade | HandoffDeclined | SelectorOpened | RoleConfigured
    return [body for body in bodies if isinstance(body, kinds)]


async def told(store: Store, kind: Kind) -> dict[str, list[str]]:
    """Return the messages of each role and selector session, without times and folders."""
    found: dict[str, list[str]] = {}
    selectors = ("owner__selector-1", "owner__selector-2") if kind == "chosen" else ()
    for role in (*GRAPHS[kind].roles, *selectors):
        session = await store.open(f"{FLOW}__{role}")
        texts = [message.text for message in await session.messages()]
        found[role] = [text.partition(" at 2")[0] for text in texts]
        bodies = [body_of(entry) for entry in await store.backend.entries(session.id)]
        found[f"compactions of {role}"] = [
            re.sub(r"record folder is `.*?`", "record folder is `R`", body.summary)
            for body in bodies
            if isinstance(body, Compaction)
        ]
    return found


async def uninterrupted(folder: Path, kind: Kind) -> Whole:
    plan = FlowPlan(folder=str(folder), kind=kind)
    async with perdure.open(plan.address) as store:
        run = await finished(plan, store)
        return outcome(run), await story(store), await told(store, kind)


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> dict[Kind, Whole]:
    """Return the end of each flow without a kill."""
    return {
        kind: asyncio.run(uninterrupted(tmp_path_factory.mktemp(kind), kind)) for kind in COMMITS
    }


@pytest.mark.parametrize("kind", COMMITS)
def test_planned_kills_cover_every_commit_of_a_flow(tmp_path: Path, kind: Kind) -> None:
    with forked(flow.run, FlowPlan(folder=str(tmp_path), kind=kind)) as child:
        assert commits_of(child, 0) == COMMITS[kind]


def test_role_still_knows_declined_handoffs_after_a_compaction(
    wholes: dict[Kind, Whole],
) -> None:
    run, happened, said = wholes["declined"]
    assert run.status == "completed"
    assert [type(each).__name__ for each in happened].count("HandoffDeclined") == 2
    at = ["owner-intake", "end", "end"]  # the second as `end` begins with a full context
    for text, node in zip(said["compactions of owner"], at, strict=True):
        assert f"You are at node `{node}`" in text
    assert len(said["compactions of developer"]) == 1
    (heard,) = [text for text in said["developer"] if text.endswith("Say less.")]
    assert "declined your handoff of long.md to `end`: build can do better" in heard


@sampled(("kind", "moment", "n"), DEATHS, kind=lambda death: death[:2], each=1)
async def test_killed_flow_ends_like_an_undisturbed_flow(
    tmp_path: Path, wholes: dict[Kind, Whole], kind: Kind, moment: Moment, n: int
) -> None:
    plan = FlowPlan(folder=str(tmp_path), kind=kind, death=Death(moment, n))
    with forked(flow.run, plan) as child:
        commits_of(child, -9)
    async with perdure.open(plan.address) as store:
        run = await finished(msgspec.structs.replace(plan, death=Death()), store)
        assert (outcome(run), await story(store), await told(store, kind)) == wholes[kind]
        assert (await store.verify()).is_ok
        for role in GRAPHS[kind].roles:
            state = await store.backend.state(StreamId(f"{FLOW}__{role}"))
            assert state.open_turn is None


@pytest.mark.parametrize("kind", COMMITS)
async def test_two_processes_deliver_every_handoff_once(
    tmp_path: Path, wholes: dict[Kind, Whole], kind: Kind
) -> None:
    plan = FlowPlan(folder=str(tmp_path), kind=kind)
    with forked(flow.run, plan) as one, forked(flow.run, plan) as other:
        assert all(commits_of(each, 0) >= 0 for each in (one, other))
    async with perdure.open(plan.address) as store:
        run = (await perdure.Flows(perdure.Runtime(store)).state(FLOW)).run
        assert (outcome(run), await story(store), await told(store, kind)) == wholes[kind]
        assert (await store.verify()).is_ok
