"""``kill -9`` at every commit of whole flows, and two processes that run one flow at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import perdure
from perdure.client.store import Store
from perdure.session.codec import body_of
from perdure.session.flows.kinds import HandoffMade, NodeClaimed, RoleConfigured, SelectorOpened
from perdure.session.flows.run import FlowRun
from perdure.session.ids import StreamId
from tests.fakes.mortal_flows import FLOW, GRAPHS, FlowPlan, Kind, finished
from tests.fakes.two_tools import Death, Moment

CHILD = Path(__file__).parent / "children" / "flow.py"

COMMITS: dict[Kind, int] = {"two": 15, "three": 31, "chosen": 13}
"""Commits of the whole flow, which every kill comes before or after one of."""

DEATHS: list[tuple[Kind, Moment, int]] = [
    *[("two", "before_commit", n) for n in range(1, COMMITS["two"] + 1)],
    *[("two", "after_commit", n) for n in range(1, COMMITS["two"] + 1)],
    *[("three", "after_commit", n) for n in range(1, COMMITS["three"] + 1)],
    *[("chosen", "before_commit", n) for n in range(1, COMMITS["chosen"] + 1)],
    *[("chosen", "after_commit", n) for n in range(1, COMMITS["chosen"] + 1)],
]


def child(plan: FlowPlan) -> subprocess.Popen[bytes]:
    argv = [sys.executable, str(CHILD), msgspec.json.encode(plan).decode()]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def commits_of(running: subprocess.Popen[bytes], code: int) -> int:
    """How many commits a child told before it ended, as it should have, with `code`."""
    out, problem = running.communicate(timeout=90)
    assert running.returncode == code, problem.decode()
    return len(out.splitlines())


def outcome(run: FlowRun) -> FlowRun:
    """Where a flow ended, without where its files were."""
    return msgspec.structs.replace(run, workspace_root="", record_folder_path="")


async def story(store: Store) -> list[object]:
    """Every choice, claim and handoff of the flow, in order."""
    bodies = [body_of(entry) for entry in await store.backend.entries(StreamId(FLOW))]
    kinds = NodeClaimed | HandoffMade | SelectorOpened | RoleConfigured
    return [body for body in bodies if isinstance(body, kinds)]


async def told(store: Store, kind: Kind) -> dict[str, list[str]]:
    """What was said in the session of each role and selector, without the times in it."""
    found: dict[str, list[str]] = {}
    selectors = ("owner__selector-1", "owner__selector-2") if kind == "chosen" else ()
    for role in (*GRAPHS[kind].roles, *selectors):
        session = await store.open(f"{FLOW}__{role}")
        texts = [message.text for message in await session.messages()]
        found[role] = [text.partition(" at 2")[0] for text in texts]
    return found


async def uninterrupted(folder: Path, kind: Kind) -> tuple[FlowRun, list[object], object]:
    plan = FlowPlan(folder=str(folder), kind=kind)
    async with perdure.open(plan.address) as store:
        run = await finished(plan, store)
        return outcome(run), await story(store), await told(store, kind)


@pytest.mark.parametrize("kind", COMMITS)
def test_the_deaths_are_at_all_commits_of_a_flow(tmp_path: Path, kind: Kind) -> None:
    assert commits_of(child(FlowPlan(folder=str(tmp_path), kind=kind)), 0) == COMMITS[kind]


@pytest.mark.parametrize(("kind", "moment", "n"), DEATHS)
async def test_a_flow_killed_anywhere_ends_as_one_that_was_not(
    tmp_path: Path, kind: Kind, moment: Moment, n: int
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    plan = FlowPlan(folder=str(killed), kind=kind, death=Death(moment, n))
    commits_of(child(plan), -9)
    expected = await uninterrupted(whole, kind)
    async with perdure.open(plan.address) as store:
        run = await finished(msgspec.structs.replace(plan, death=Death()), store)
        assert (outcome(run), await story(store), await told(store, kind)) == expected
        assert (await store.verify()).is_ok
        for role in GRAPHS[kind].roles:
            state = await store.backend.state(StreamId(f"{FLOW}__{role}"))
            assert state.open_turn is None


@pytest.mark.parametrize("kind", COMMITS)
async def test_two_processes_that_run_one_flow_deliver_every_handoff_once(
    tmp_path: Path, kind: Kind
) -> None:
    together, alone = tmp_path / "together", tmp_path / "alone"
    together.mkdir()
    alone.mkdir()
    plan = FlowPlan(folder=str(together), kind=kind)
    both = [child(plan), child(plan)]
    assert all(commits_of(each, 0) >= 0 for each in both)
    expected = await uninterrupted(alone, kind)
    async with perdure.open(plan.address) as store:
        run = (await perdure.Flows(perdure.Runtime(store)).state(FLOW)).run
        assert (outcome(run), await story(store), await told(store, kind)) == expected
        assert (await store.verify()).is_ok
