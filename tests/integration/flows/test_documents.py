"""Workflow documents through the library: real sessions, tools and files, a scripted model."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.flows.flow import Flow
from perdure.client.flows.flows import Flows
from perdure.errors import ConfigError, FlowRefusal, InvalidWorkflow, PerdureError
from perdure.models.prices import Price
from perdure.models.scenario import Fail, Hang, Reply, Say, Step, When
from perdure.session.flows.graph import FlowNode, Graph
from perdure.session.flows.run import FeedbackContext, FlowState
from perdure.workflow.document import AgentNode, ContextEntry, RunInput, Workflow
from tests.fakes.chats import until
from tests.fakes.documents import document
from tests.fakes.flow_stage import MODEL, FlowStage, says, writes

LINE = document("in>plan", "plan>check", "check>out")
DIAMOND = document("in>plan", "plan>left", "plan>right", "left>join", "right>join", "join>out")


def steps(at: str, *said: Step) -> Reply:
    return Reply(when=When(user_contains=at), steps=said)


def changed(workflow: Workflow, id: str, **fields: object) -> Workflow:
    """Return `workflow` with changed fields of one node."""
    nodes = [
        msgspec.structs.replace(node, **fields) if node.id == id else node
        for node in workflow.nodes
    ]
    return msgspec.structs.replace(workflow, nodes=tuple(nodes))


async def at_work(flow: Flow) -> bool:
    return bool((await flow.state()).run.running_nodes)


async def said(flow: Flow, role: str) -> list[str]:
    return [message.text for message in await (await flow.session(role)).messages()]


async def ended(stage: FlowStage, workflow: Workflow, **given: object) -> tuple[FlowState, Flow]:
    """Return a flow of `workflow` after it ran as far as possible."""
    async with stage.flows("helper") as flows:
        flow = await flows.start(workflow, workspace=stage.workspace, id="f", inputs=given)
        await flow.run()
        return await flow.state(), flow


async def test_successive_nodes_of_one_agent_share_a_session(
    tmp_path: Path,
) -> None:
    stage = FlowStage(tmp_path, says("Do check", "all is well"), says("Do plan", "first this"))
    state, flow = await ended(stage, LINE)
    assert state.run.status == "completed"
    assert await said(flow, "helper") == ["Do plan", "first this", "Do check", "all is well"]
    async with stage.flows() as flows:
        assert await flows.outputs("f") == {"out": "all is well"}
        assert [each.run.flow_id for each in await flows.list()] == ["f"]
    record = tmp_path / ".perdure" / "records" / "f"
    assert (record / "outputs" / "check.md").read_text() == "all is well"
    assert (record / "inputs" / "in.json").read_text() == "{}\n"


async def test_branches_have_separate_sessions_and_join_gets_both_outputs(
    tmp_path: Path,
) -> None:
    stage = FlowStage(
        tmp_path,
        says("Do join", "joined"),
        says("Do left", "L"),
        says("Do right", "R"),
        says("Do plan", "P"),
    )
    state, flow = await ended(stage, DIAMOND)
    assert sorted(state.sessions) == ["helper", "helper_2", "helper_3", "helper_4"]
    told = (await said(flow, "helper_4"))[0]
    assert told == "Do join\n\n## From `left`\n```\nL\n```\n\n## From `right`\n```\nR\n```"


async def test_resumed_run_uses_original_template_text(tmp_path: Path) -> None:
    workflow = document("in>a", "a>out", prompts={"a": "{{inputs.file | read_file}} {{ctx.c}}"})
    workflow = msgspec.structs.replace(
        workflow,
        inputs=(RunInput("file", "file_path", required=True),),
        context=(ContextEntry("c", "{{inputs.file | read_file | length}}"),),
    )
    notes = tmp_path / "notes.md"
    notes.write_text("as it was")
    stage = FlowStage(tmp_path, steps("as it was", Hang(times=1), Say("done")))
    async with stage.flows("helper") as flows:
        given = {"file": "notes.md"}
        flow = await flows.start(workflow, workspace=tmp_path, id="f", inputs=given)
        running = asyncio.ensure_future(flow.run())
        await until(lambda: at_work(flow))
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    notes.write_text("as it is now")
    async with stage.flows("helper", owner="another") as flows:
        flow = await flows.open("f")
        stage.clock.advance(600)
        run = await flow.run()
        assert run.status == "completed", run.awaiting_human_nodes
        assert (await said(flow, "helper"))[0] == "as it was 9"


async def test_stopped_node_continues_with_reply(tmp_path: Path) -> None:
    stage = FlowStage(
        tmp_path, steps("Do plan", Hang()), says("go on", "after all"), says("Do check", "ok")
    )
    async with stage.flows("helper") as flows:
        flow = await flows.start(LINE, workspace=tmp_path, id="f")
        running = asyncio.ensure_future(flow.run())
        await until(lambda: at_work(flow))
        await flow.stop("plan")
        run = await running
        assert run.awaiting_human_nodes["plan"].reason == "autonomous-abort"
        assert await flows.outputs("f") == {}
        await flow.reply("go on", "plan")
        run = await flow.run()
        assert run.status == "completed"
        with pytest.raises(FlowRefusal):
            await flow.reply("again", "plan")
    assert (tmp_path / ".perdure/records/f/outputs/plan.md").read_text() == "after all"


async def test_failed_branch_does_not_block_other_branches(tmp_path: Path) -> None:
    stage = FlowStage(
        tmp_path,
        steps("Do left", Fail("model_refused", reason="no")),
        says("Do right", "R"),
        says("Do plan", "P"),
    )
    state, flow = await ended(stage, DIAMOND)
    assert set(state.run.awaiting_human_nodes) == {"left"}
    assert "right=>join" in state.run.completed_handoffs
    (waiting,) = await flow.waiting()
    assert waiting.target == "left"


async def test_tool_list_of_one_node_does_not_restrict_other_nodes(
    tmp_path: Path,
) -> None:
    workflow = changed(LINE, "plan", tools=("read_file",))
    stage = FlowStage(
        tmp_path, writes("Do plan", "a.md"), writes("Do check", "b.md"), says("Do", "done")
    )
    async with stage.flows("helper") as flows:
        flow = await flows.start(workflow, workspace=tmp_path, id="f", consent="full-access")
        run = await flow.run()
        assert run.status == "completed", run.awaiting_human_nodes
        told = await said(flow, "helper")
    assert any("no tool 'write_file'" in text for text in told)
    assert not (tmp_path / "a.md").exists()
    assert (tmp_path / "b.md").exists()


async def test_flow_continues_after_tool_approval(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path, writes("Do plan", "a.md"), says("Do", "done"))
    async with stage.flows("helper") as flows:
        flow = await flows.start(LINE, workspace=tmp_path, id="f")
        running = asyncio.ensure_future(flow.run())

        async def is_waiting() -> bool:
            return bool(await flow.waiting())

        await until(is_waiting)
        assert [each.topic for each in await flow.waiting()] == ["consent"]
        await flow.consent("full-access")
        run = await running
        assert run.status == "completed"
        assert (tmp_path / "a.md").exists()


async def test_node_whose_agent_exceeds_its_budget_waits_with_the_reason(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path, says("Do", "done"))
    agent = Agent("helper", model=MODEL, max_cost_microcents=1, on_exceed="fail")
    prices = {MODEL: Price(1_000_000_000, 1_000_000_000)}
    runtime = Runtime(stage.store, [agent], models=stage.models, prices=prices)
    async with Flows(runtime) as flows:
        flow = await flows.start(LINE, workspace=tmp_path, id="f")
        run = await flow.run()
    assert "raise max_cost_microcents" in (run.awaiting_human_nodes["plan"].detail or "")


async def test_flow_uses_a_reply_in_place_of_a_missing_file(
    tmp_path: Path,
) -> None:
    workflow = document("in>a", "a>out", prompts={"a": "{{inputs.file | read_file}}"})
    workflow = msgspec.structs.replace(workflow, inputs=(RunInput("file", required=True),))
    stage = FlowStage(tmp_path, says("instead", "fine"))
    state, _ = await ended(stage, workflow, file="../gone.md")
    detail = state.run.awaiting_human_nodes["a"].detail or ""
    assert "'../gone.md' cannot be read" in detail
    async with stage.flows("helper") as flows:
        flow = await flows.open("f")
        await flow.reply("this instead")
        run = await flow.run()
        assert run.status == "completed", run.awaiting_human_nodes
        assert await flows.outputs("f") == {"out": "fine"}


async def test_context_files_must_exist_at_flow_start(tmp_path: Path) -> None:
    entry = ContextEntry("c", "{{inputs.file | read_file}}")
    workflow = msgspec.structs.replace(LINE, inputs=(RunInput("file"),), context=(entry,))
    workflow = msgspec.structs.replace(
        workflow, inputs=(RunInput("file", required=True), RunInput("x", required=True))
    )
    stage = FlowStage(tmp_path)
    with pytest.raises(ConfigError, match=r"ctx\.c: the file 'gone\.md' cannot be read"):
        await ended(stage, workflow, file="gone.md", x="1")
    with pytest.raises(ConfigError, match=r"'file', a text, is missing.*'x', a text, is missing"):
        await ended(stage, workflow)
    async with stage.flows() as flows:
        assert await flows.list() == []


async def test_workflow_file_with_agents_runs_without_program_agents(
    tmp_path: Path,
) -> None:
    workflow = changed(LINE, "check", agent_ref="other")
    own = {"id": "other", "model": "echo", "provider": "scripted", "system_prompt": "In {{ctx.c}}."}
    workflow = msgspec.structs.replace(
        workflow, agents=(*workflow.agents, own), context=(ContextEntry("c", "German"),)
    )
    stage = FlowStage(tmp_path, steps("Do plan", Fail("model_refused", times=1), Say("P")))
    async with Flows(Runtime(stage.store)) as flows:
        flow = await flows.start(workflow, workspace=tmp_path, id="f")
    async with Flows(Runtime(stage.store)) as flows:
        flow = await flows.open("f")
        assert (await flow.run()).status == "completed"
        session = await flow.session("other")
        assert "you wrote “Do check" in (await session.messages())[-1].text


async def test_retry_limit_in_a_workflow_file_applies_to_its_agent(tmp_path: Path) -> None:
    own: dict[str, object] = {
        "id": "helper",
        "model": "flow",
        "provider": "scripted",
        "system_prompt": "",
        "retry": {"max": 1},
    }
    for most, status in ((1, "running"), (2, "completed")):
        own["retry"] = {"max": most, "backoff_ms": 0}
        workflow = msgspec.structs.replace(LINE, agents=(own,))
        failing = Fail("model_unavailable", times=1)
        stage = FlowStage(tmp_path, steps("Do plan", failing, Say("P")), says("Do check", "C"))
        async with Flows(Runtime(stage.store, models=stage.models)) as flows:
            flow = await flows.start(workflow, workspace=tmp_path, id=f"f{most}")
            assert (await flow.run()).status == status


async def test_instructions_with_unknown_placeholder_are_rejected(
    tmp_path: Path,
) -> None:
    stage = FlowStage(tmp_path)
    async with stage.flows("helper", instructions="In {{ctx.nope}}.") as flows:
        with pytest.raises(InvalidWorkflow, match=r"\{\{ctx\.nope\}\}"):
            await flows.start(LINE, workspace=tmp_path)
        assert await flows.list() == []


async def test_unrunnable_document_is_rejected_before_any_write(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path)
    node = AgentNode("plan", "helper", "{{x}}", ("no_tool",))
    wrong = msgspec.structs.replace(LINE, nodes=(LINE.nodes[0], node, *LINE.nodes[2:]))
    async with stage.flows("helper") as flows:
        with pytest.raises(InvalidWorkflow) as caught:
            await flows.start(wrong, workspace=tmp_path)
        assert len(caught.value.faults) == 2
        roles = Graph("g", (FlowNode("owner-intake", "owner"),))
        with pytest.raises(ConfigError, match="no reflection"):
            await flows.start(LINE, workspace=tmp_path, feedback=FeedbackContext("update"))
        with pytest.raises(ConfigError, match="takes no inputs"):
            await flows.start(roles, workspace=tmp_path, inputs={"a": "b"})
        with pytest.raises(ConfigError, match="no folder"):
            await flows.start(LINE, workspace=tmp_path / "gone")
        secret = {"message": "AKIA" + "IOSFODNN7EXAMPLE"}
        with pytest.raises(PerdureError, match="message"):
            await flows.start(LINE, workspace=tmp_path, inputs=secret)
        assert await flows.list() == []
    assert not (tmp_path / ".perdure").exists()


@pytest.mark.parametrize(
    ("agent", "fault"),
    [
        ({"id": "helper", "model": "m"}, "agent 'helper': 'system_prompt' is missing"),
        ({"id": "helper", "model": "m", "provider": "nobody", "system_prompt": ""}, "no provider"),
        (
            {"id": "helper", "model": "scripted:m", "system_prompt": "", "output_schema": {}},
            "perdure checks no output of agents",
        ),
        (
            {
                "id": "helper",
                "model": "scripted:m",
                "system_prompt": "",
                "mcp_servers": [{"name": "x", "command": ["x"]}],
            },
            "brings no MCP servers",
        ),
    ],
)
async def test_invalid_agent_files_are_reported(
    tmp_path: Path, agent: dict[str, object], fault: str
) -> None:
    stage = FlowStage(tmp_path)
    workflow = msgspec.structs.replace(LINE, agents=(agent,))
    async with stage.flows() as flows:
        with pytest.raises(InvalidWorkflow) as caught:
            await flows.start(workflow, workspace=tmp_path)
    assert any(fault in each for each in caught.value.faults)


async def test_workflow_output_connected_to_the_input_equals_the_input(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path)
    state, _ = await ended(stage, document("in>out", "in>out2"), message="hi")
    assert state.run.status == "completed"
    async with stage.flows() as flows:
        assert await flows.outputs("f") == {"out": {"message": "hi"}, "out2": {"message": "hi"}}
