"""Turns whose commit to the flow's log is rejected because of a concurrent append to the log.

The log of the flow is shorter than the sessions of the roles. Because the log and a session have
different heads, a runner that confused the heads would fail the tests."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from perdure.engine.flows.journal import Journal
from perdure.errors import HeadConflict
from perdure.session.flows.kinds import HandoffMade, NodeClaimed, RoleConfigured
from perdure.session.ids import StreamId
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, CommitResult
from tests.fakes.flow_log import graph
from tests.fakes.flow_stage import FlowStage, ends, hands

FLOW = StreamId("f")
RECORD = "record"
PATIENCE_S = 60.0
COMMIT_S = 0.02
"""Duration of a commit to a server."""
OWNERS = {"owner-intake": "owner", "end": "owner"}
LINE = graph("owner-intake>end", **OWNERS)
FAN = graph("owner-intake>a", "owner-intake>b", "a>end", "b>end", **OWNERS, a="dev", b="qa")


def before_commits(
    monkeypatch: pytest.MonkeyPatch, store: MemoryStore, act: Callable[[Commit], Awaitable[None]]
) -> list[HeadConflict]:
    """Run `act` before each commit; return the list to which each conflict is appended."""
    commit_as_it_is, conflicts = store.commit, list[HeadConflict]()

    async def commit(commit: Commit) -> CommitResult:
        await act(commit)
        try:
            return await commit_as_it_is(commit)
        except HeadConflict as conflict:
            conflicts.append(conflict)
            raise

    monkeypatch.setattr(store, "commit", commit)
    return conflicts


async def test_parallel_nodes_on_slow_store_hand_over_all_their_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = FlowStage(
        tmp_path,
        *hands("Node `owner-intake`", RECORD, "plan.md", "a", "b"),
        *hands("Node `a`", RECORD, "a.md", "end"),
        *hands("Node `b`", RECORD, "b.md", "end"),
        ends("Node `end`", "prompt-human"),
    )
    flow = await stage.flows("owner", "dev", "qa").start(
        FAN, workspace=tmp_path, id=FLOW, record_folder=RECORD, consent="full-access"
    )
    made: Counter[str] = Counter()
    has_both = {kind: asyncio.Event() for kind in (NodeClaimed.kind, HandoffMade.kind)}

    async def together(commit: Commit) -> None:
        """Let the nodes `a` and `b` read the same log before the first of them commits."""
        await asyncio.sleep(COMMIT_S)
        for kind in {entry.kind for write in commit.writes for entry in write.entries}:
            if kind in has_both:
                made[kind] += 1  # the first is of the node `owner-intake`
                if made[kind] > 2:
                    has_both[kind].set()
                elif made[kind] == 2:
                    await has_both[kind].wait()

    conflicts = before_commits(monkeypatch, stage.memory, together)
    run = await asyncio.wait_for(flow.run(), PATIENCE_S)
    assert FLOW in [conflict.stream for conflict in conflicts]
    assert set(run.completed_handoffs) >= {"a=>end", "b=>end"}
    assert {node: each.reason for node, each in run.awaiting_human_nodes.items()} == {
        "end": "prompt-human"
    }


async def test_handoff_is_made_once_if_another_process_configures_a_role_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = FlowStage(
        tmp_path,
        *hands("Node `owner-intake`", RECORD, "plan.md", "end"),
        ends("Node `end`", "forward-pass-closed"),
    )
    flow = await stage.flows("owner").start(
        LINE, workspace=tmp_path, id=FLOW, record_folder=RECORD, consent="full-access"
    )
    waiting = [RoleConfigured("dev", model="a:b")]

    async def configured(commit: Commit) -> None:
        kinds = {entry.kind for write in commit.writes for entry in write.entries}
        if HandoffMade.kind in kinds and waiting:
            body = waiting.pop()
            await Journal(stage.memory, FLOW, stage.clock).append(lambda _: [body])

    conflicts = before_commits(monkeypatch, stage.memory, configured)
    run = await asyncio.wait_for(flow.run(), PATIENCE_S)
    assert [conflict.stream for conflict in conflicts] == [FLOW]
    assert run.status == "awaiting_improvement_choice"
    kinds = [entry.kind for entry in await stage.memory.entries(FLOW)]
    assert kinds == [
        "flow_started",
        "node_claimed",
        "role_configured",
        "handoff_made",
        "node_claimed",
        "forward_pass_closed",
    ]
