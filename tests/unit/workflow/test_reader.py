"""Strict reading of a workflow: all faults are reported together, each with its line."""

from __future__ import annotations

import pytest

from perdure.errors import InvalidWorkflow
from perdure.workflow.document import (
    AgentNode,
    ContextEntry,
    Edge,
    InputNode,
    OutputNode,
    RunInput,
    Workflow,
)
from perdure.workflow.reader import is_document, parse, parse_located
from perdure.workflow.writer import serialize

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


def test_valid_workflow_is_parsed() -> None:
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


def test_every_fault_of_a_workflow_has_its_line_number() -> None:
    text = GOOD.replace('"1.0"', '"2.0"').replace("id: trip", "id: My Trip")
    text = text.replace("to: output", "to: nowhere").replace("id: output", "id: input")
    text = text.replace("metadata:", "meta:")
    assert faults_of(text) == (
        "line 2: '2.0' is not one of 1.0",
        "line 4: 'My Trip' is not an id: use a-z, 0-9 and single hyphens",
        "line 8: a second node is called 'input'",
        "line 11: there is no node 'nowhere'",
        "line 13: 'meta' is unknown here; did you mean 'metadata'?",
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
        (GOOD.replace("id: trip", "id: ''"), "'' is not an id"),
        (GOOD.replace("id: helper", "id: ''"), "'' is not an id"),
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
def test_workflow_faults_describe_the_error(text: str, fault: str) -> None:
    if fault.endswith("expected"):
        assert faults_of(text)
        return
    assert fault in "; ".join(faults_of(text))


WITH_INPUTS = GOOD.replace(
    "  nodes:\n",
    """\
  inputs:
    - {name: topic, required: true, description: What it is about}
    - {name: count, type: number, default: 3}
  context:
    - {key: style, value: "short on {{inputs.topic}}"}
  nodes:
""",
)


def test_inputs_and_context_are_written_and_read_back_unchanged() -> None:
    workflow = parse(WITH_INPUTS)
    assert workflow.inputs == (
        RunInput("topic", required=True, description="What it is about"),
        RunInput("count", "number", default=3),
    )
    assert workflow.context == (ContextEntry("style", "short on {{inputs.topic}}"),)
    assert parse(serialize(workflow)) == workflow
    assert serialize(parse(serialize(workflow))) == serialize(workflow)


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("name: topic", "name: a topic", "line 6: 'a topic' is no name"),
        ("name: topic", "name: ''", "line 6: '' is no name"),
        ("type: number", "type: secret", "line 7: perdure takes no 'secret' inputs"),
        ("type: number", "type: list", "line 7: 'list' is not one of string, number"),
        ("default: 3", "default: three", "line 7: the default of a number cannot be this"),
        ("name: count", "name: topic", "line 7: a second input is called 'topic'"),
        ("key: style", "kex: style", "line 9: 'kex' is unknown here"),
        ("required: true", "required: often", "line 6: expected true or false"),
    ],
)
def test_faults_in_inputs_and_context_are_described(before: str, after: str, fault: str) -> None:
    assert fault in "; ".join(faults_of(WITH_INPUTS.replace(before, after)))


def test_error_for_an_unsupported_node_type_mentions_the_type() -> None:
    text = GOOD.replace("type: input}", "type: human_gate, gate_type: approval}")
    assert faults_of(text) == (
        "line 6: perdure does not run 'human_gate' nodes: it runs input, agent, output",
    )


def test_each_part_of_a_workflow_has_its_line() -> None:
    lines = parse_located(WITH_INPUTS).lines
    assert lines.inputs == {"topic": 6, "count": 7}
    assert lines.context == {"style": 9}
    assert lines.nodes == {"input": 11, "plan": 12, "output": 13}
    assert (lines.prompts, lines.tools) == ({"plan": 12}, {"plan": (12,)})
    assert lines.edges == (15, 16)
    assert lines.agents["helper"].line == 17


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD, True),
        ('{"schema_version": "1.0", "workflow": {}}', True),
        ("schema_version: '1.0", True),
        ("workflow:\n  name: a\n  nodes: []\n", False),
        ('{"workflow": {}}', False),
        ("", False),
        ("{", False),
    ],
)
def test_document_is_detected_by_content(text: str, expected: bool) -> None:
    assert is_document(text) == expected
