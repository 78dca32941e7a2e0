"""Until a flow is completed or deleted, only the flow can write to the sessions of its roles."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.store import Store
from perdure.errors import Erased, FlowRefusal
from perdure.session.flows.graph import FlowNode, Graph
from tests.fakes.flow_stage import MODEL, FlowStage, ends

SOLO = Graph("A change", (FlowNode("owner-intake", "owner", work=("Do it.",)),), ())
STAGE = (
    ends("Node `owner-intake`", "prompt-human"),
    ends("go on", "forward-pass-closed"),
)


async def entries(store: Store) -> int:
    return len(await store.backend.entries((await store.open("f__owner")).id))


async def test_program_cannot_change_role_session_of_unfinished_flow(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path, *STAGE)
    store, agent = stage.store, Agent("owner", model=MODEL)
    async with stage.flows("owner") as flows:
        flow = await flows.start(SOLO, workspace=tmp_path, id="f")
        await flow.run()
        session = await flow.session("owner")
        before = await entries(store)
        for act, instead in (
            (
                lambda: Runtime(store, [agent], models=stage.models).resume("f__owner"),
                "Flow.reply .* Flow.run .* Session.fork",
            ),
            (session.end, "Flow.stop .* Flows.delete"),
            (session.abandon_turn, "Flow.run .* Flow.stop"),
            (lambda: session.branch(None), "Session.fork makes a copy"),
            (
                lambda: session.branch_with_summary(None, "It was long."),
                "Session.fork makes a copy",
            ),
        ):
            with pytest.raises(FlowRefusal, match=f"role owner, .*{instead}"):
                await act()
        assert await entries(store) == before
        fork = await session.fork()
        assert await fork.end() is not None
        await flow.reply("go on")
        await flow.run()
        await flow.choose_improvement("none")
        assert (await flow.run()).status == "completed"
        assert await session.end() is not None


async def test_session_of_an_erased_flow_reports_its_erasure(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path, *STAGE)
    async with stage.flows("owner") as flows:
        flow = await flows.start(SOLO, workspace=tmp_path, id="f")
        await flow.run()
        session = await flow.session("owner")
        await stage.store.erase("f")
        with pytest.raises(Erased):
            await session.end()
