"""All validation errors of a document are reported together, each with its line."""

from __future__ import annotations

import pytest
from hypothesis import given

from perdure.engine.flows.documents.structure import faults_of, in_order
from perdure.workflow.document import Workflow
from perdure.workflow.reader import LocatedWorkflow, parse_located
from tests.fakes.documents import document, documents
from tests.fakes.samples import case

TEXT = """\
schema_version: "1.0"
workflow:
  id: trip
  inputs:
    - {name: topic, required: true}
    - {name: days, type: number}
  context:
    - {key: style, value: "on {{inputs.topic}}"}
  nodes:
    - {id: input, type: input}
    - {id: plan, type: agent, agent_ref: helper, prompt_template: "{{inputs.topic}}"}
    - {id: check, type: agent, agent_ref: helper, prompt_template: "{{ctx.style}}"}
    - {id: output, type: output}
  edges:
    - {from: input, to: plan}
    - {from: plan, to: check}
    - {from: check, to: output}
"""


def told(text: str, agents: tuple[str, ...] = ("helper",), names: tuple[str, ...] = ()) -> str:
    return "; ".join(in_order(faults_of(parse_located(text), agents, names)))


def test_document_that_can_be_run_has_no_faults() -> None:
    assert told(TEXT) == ""


def test_faults_of_workflow_are_listed() -> None:
    for before, after, fault in [
        ("plan", "pl/an", "line 11: 'pl/an' cannot be the id of a node"),
        (
            'id: check, type: agent, agent_ref: helper, prompt_template: "{{ctx.style}}"}',
            "id: check, type: input}",
            "line 12: 'check' is a second input node",
        ),
        ("type: output", "type: agent, agent_ref: helper", "there is no output node"),
        (
            "{from: check, to: output}",
            "{from: plan, to: check}",
            "line 13: no edge leads to the output",
        ),
        (
            "{from: check, to: output}",
            "{from: plan, to: check}",
            "line 17: the edge from 'plan' to 'check' is there twice",
        ),
        (
            "{from: plan, to: check}",
            "{from: check, to: input}",
            "line 16: nothing can be handed to the input 'input'",
        ),
        (
            "{from: plan, to: check}",
            "{from: output, to: check}",
            "line 16: the output 'output' hands nothing over",
        ),
        (
            "{from: input, to: plan}",
            "{from: check, to: plan}",
            "the edges go round in a circle: plan => check => plan",
        ),
        ("{{ctx.style}}", "{{ctx.stile}}", "line 12: there is no ctx.stile; there is: style"),
        (
            "{{ctx.style}}",
            "{{run.outputs.output}}",
            'line 12: run.outputs["output"] is no agent node',
        ),
        (
            "{{ctx.style}}",
            "{{run.outputs.check}}",
            'line 12: run.outputs["check"] is no agent node',
        ),
        ("{{ctx.style}}", "{{inputs.when}}", "line 12: inputs.when is not declared under `inputs`"),
        ("{{ctx.style}}", "{{inputs.days}}", "line 12: inputs.days may be missing"),
        ("{{ctx.style}}", "{{style}}", "line 12: {{style}} cannot be filled in"),
        ("on {{inputs.topic}}", "{{run.outputs.plan}}", "line 8: ctx.style: no node has run yet"),
        (
            "on {{inputs.topic}}",
            "{{ctx.style}}",
            "line 8: ctx.style: an entry of the context cannot",
        ),
        ("on {{inputs.topic}}", "{{inputs.x}}", "line 8: ctx.style: inputs.x is not declared"),
    ]:
        with case((before, after, fault)):
            assert fault in told(TEXT.replace(before, after))


@pytest.mark.parametrize(
    "prompt",
    ["{{run.outputs.plan}}", "{{run.id}}", "{{inputs.days | default(3)}}", "{{ctx.git_ref}}"],
)
def test_valid_placeholders_are_no_fault(prompt: str) -> None:
    assert told(TEXT.replace("{{ctx.style}}", prompt), names=("git_ref",)) == ""


def test_missing_agent_is_reported_once_with_remedies() -> None:
    fault = told(TEXT, agents=("other",))
    assert fault.count("there is no agent 'helper'") == 1
    assert "helper.agent.yaml" in fault
    assert "there are: other" in fault


def test_faults_of_a_document_without_a_file_have_no_line_numbers() -> None:
    workflow = document("in>a", "a>out", prompts={"a": "{{inputs.x}}"})
    faults = in_order(faults_of(LocatedWorkflow(workflow), (), ()))
    assert faults == ("inputs.x is not declared under `inputs` (there are: none)",)


@given(documents())
def test_structure_check_of_an_executable_workflow_finds_no_fault(
    drawn: tuple[Workflow, object],
) -> None:
    assert faults_of(LocatedWorkflow(drawn[0]), (), ()) == []
