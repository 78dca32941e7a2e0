"""Any runnable workflow document completes with its outputs, or reports why it cannot complete."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.engine.flows.documents.document_flow import graph_of
from perdure.models.scenario import Fail, Reply, Say, When
from perdure.session.flows.run import FlowState
from perdure.workflow.document import AgentNode, OutputNode, Workflow
from tests.fakes.documents import documents
from tests.fakes.flow_stage import FlowStage

OPENER = '{{run.id}} {{inputs.a}} {{run.outputs["n0"]}}'
"""The answer of every agent: placeholders that perdure must never fill in."""


async def run(
    workflow: Workflow, inputs: dict[str, object], refused: str | None, folder: Path
) -> tuple[FlowState, dict[str, object], dict[str, list[str]], int]:
    """Run the flow; return its state, its outputs, the prompts of its agents, and open waits."""
    rules = [Reply(steps=(Say(OPENER),))]
    if refused is not None:
        said = When(user_contains=f"Do {refused}.")
        rules.insert(0, Reply(when=said, steps=(Fail("model_refused", reason="no"),)))
    stage = FlowStage(folder, *rules)
    async with stage.flows("helper", "other", tools=()) as flows:
        flow = await flows.start(workflow, workspace=folder, id="f", inputs=inputs)
        await flow.run()
        state = await flow.state()
        told: dict[str, list[str]] = {}
        for role in state.sessions:
            messages = await (await flow.session(role)).messages()
            told[role] = [message.text for message in messages if message.role == "user"]
        return state, await flows.outputs("f"), told, len(await flow.waiting())


@given(documents(), st.none() | st.sampled_from(["n0", "n1", "n3", "n7"]))
@settings(deadline=None, max_examples=max(12, settings().max_examples // 4))
def test_document_run_completes_or_reports_why_it_waits(
    drawn: tuple[Workflow, dict[str, object]], refused: str | None
) -> None:
    workflow, inputs = drawn
    agents = [node.id for node in workflow.nodes if isinstance(node, AgentNode)]
    with tempfile.TemporaryDirectory() as folder:
        state, outputs, told, waiting = asyncio.run(run(workflow, inputs, refused, Path(folder)))
    if refused in agents:
        assert state.run.status == "running"
        assert list(state.run.awaiting_human_nodes) == [refused]
        assert state.run.awaiting_human_nodes[refused or ""].detail
        assert (outputs, waiting) == ({}, 1)
        return
    assert state.run.status == "completed"
    assert set(state.run.visited_node_ids) == {node.id for node in workflow.nodes}
    assert set(state.run.completed_handoffs) == {edge.key for edge in graph_of(workflow).edges}
    assert set(outputs) == {n.id for n in workflow.nodes if isinstance(n, OutputNode)}
    prompts = [text for texts in told.values() for text in texts]
    assert sorted(text.split(".")[0] for text in prompts) == sorted(f"Do {id}" for id in agents)
    for node in workflow.nodes:
        if isinstance(node, AgentNode):
            _check(
                node, next(text for text in prompts if text.startswith(f"Do {node.id}.")), inputs
            )


def _check(node: AgentNode, text: str, inputs: dict[str, object]) -> None:
    """Check that placeholders in an answer or input stay unchanged."""
    prompt = node.prompt_template or ""
    if "run.outputs" in prompt and "| " not in prompt:
        assert OPENER in text
    for name, value in inputs.items():
        if f"{{{{inputs.{name}}}}}" in prompt:
            assert str(value) in text
