"""A workflow is read strictly: all of its faults at once, each with its line."""

from __future__ import annotations

import pytest

from perdure.errors import InvalidWorkflow
from perdure.workflow.document import AgentNode, Edge, InputNode, OutputNode, Workflow
from perdure.workflow.reading import parse

GOOD = """\
# comments are for people
schema_version: "1.0"
workflow:
  id: trip
  nodes:
    - {id: input, type: input}
    - {id: plan, type: agent, agent_ref: helper, prompt_template: "Plan {{inputs.x}}", tools: [a]}
    - {id: output, type: output}
  edges:
    - {from: input, to: plan}
    - {from: plan, to: output}
  agents: [{id: helper, model: m, provider: openai, system_prompt: ""}]
  metadata: {anything: [goes, 1]}
"""


def faults_of(text: str) -> tuple[str, ...]:
    with pytest.raises(InvalidWorkflow) as caught:
        parse(text, "w.yaml")
    assert caught.value.source == "w.yaml"
    assert caught.value.facts()["faults"] == caught.value.faults
    return caught.value.faults


def test_a_workflow_is_read_as_it_was_meant() -> None:
    assert parse(GOOD) == Workflow(
        id="trip",
        nodes=(
            InputNode("input"),
            AgentNode("plan", "helper", "Plan {{inputs.x}}", ("a",)),
            OutputNode("output"),
        ),
        edges=(Edge("input", "plan"), Edge("plan", "output")),
        agents=({"id": "helper", "model": "m", "provider": "openai", "system_prompt": ""},),
        metadata={"anything": ["goes", 1]},
    )


def test_every_fault_is_told_with_its_line() -> None:
    text = GOOD.replace('"1.0"', '"2.0"').replace("id: trip", "id: My Trip")
    text = text.replace("to: output", "to: nowhere").replace("id: output", "id: input")
    text = text.replace("metadata:", "meta:")
    assert faults_of(text) == (
        "line 2: '2.0' is not one of 1.0",
        "line 4: 'My Trip' is not an id: use a-z, 0-9 and single hyphens",
        "line 8: a second node is called 'input'",
        "line 11: there is no node 'nowhere'",
        "line 13: 'meta' is unknown here (known: id, name, agents, nodes, edges, metadata)",
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "line 1: the file is empty"),
        ("a: [", "line 1: did not find expected"),
        ("[]", "line 1: expected a mapping"),
        ("schema_version: '1.0'", "'workflow' is missing"),
        ("schema_version: '1.0'\nworkflow: {id: a, nodes: [], edges: []}", "at least one node"),
        (GOOD.replace("type: input", "type: loop"), "'loop' is not one of input, agent, output"),
        (GOOD.replace("agent_ref: helper, ", ""), "'agent_ref' is missing"),
        (GOOD.replace("tools: [a]", "model: x"), "'model' is unknown here"),
        (GOOD.replace("type: input}", "type: input, tools: [a]}"), "'tools' is unknown here"),
        (GOOD.replace("provider:", "povider:"), "'povider' is unknown here"),
        (GOOD.replace("{anything: [goes, 1]}", "[1]"), "expected a mapping"),
        (
            GOOD.replace('system_prompt: ""}]', 'system_prompt: ""}, {id: helper}]'),
            "a second agent",
        ),
    ],
)
def test_what_is_wrong_is_said(text: str, fault: str) -> None:
    if fault.endswith("expected"):
        assert faults_of(text)
        return
    assert fault in "; ".join(faults_of(text))
