"""Inputs are checked before the flow starts, and all faults are reported together."""

from __future__ import annotations

import pytest

from perdure.engine.flows.documents.input_check import check_inputs, from_texts, inputs_text, untold
from perdure.engine.flows.documents.structure import in_order
from perdure.workflow.document import RunInput, Workflow
from perdure.workflow.reader import Lines, LocatedWorkflow
from tests.fakes.documents import document

INPUTS = (
    RunInput("topic", required=True),
    RunInput("days", "number", default=3),
    RunInput("is_long", "boolean"),
    RunInput("file", "file_path"),
)
LINES = Lines(inputs={"topic": 4, "days": 5, "is_long": 6, "file": 7})
LOCATED = LocatedWorkflow(Workflow("w", (), inputs=INPUTS), LINES)


def test_missing_inputs_get_their_defaults() -> None:
    assert check_inputs(LOCATED, {"topic": "tides"}) == ({"topic": "tides", "days": 3}, [])
    given = {"topic": "", "days": 2.5, "is_long": True, "file": "a.md"}
    assert check_inputs(LOCATED, given) == (given, [])


def test_all_input_faults_are_reported_together() -> None:
    given = {"days": "many", "is_long": 1, "file": " ", "day": "x"}
    assert in_order(check_inputs(LOCATED, given)[1]) == (
        "there is no input 'day'; the workflow takes: topic, days, is_long, file",
        "line 4: the input 'topic', a text, is missing",
        "line 5: the input 'days' has to be a number",
        "line 6: the input 'is_long' has to be true or false",
        "line 7: the input 'file' has to be the path of a file",
    )


@pytest.mark.parametrize("value", [True, "3", None, float("inf"), float("nan"), 2**63, []])
def test_document_input_with_an_invalid_number_is_a_fault(value: object) -> None:
    assert check_inputs(LOCATED, {"topic": "", "days": value})[1]


def test_credential_is_rejected_without_quoting_it() -> None:
    secret = "AKIA" + "IOSFODNN7EXAMPLE"
    ((_, fault),) = check_inputs(LOCATED, {"topic": f"use {secret}"})[1]
    assert "topic" in fault
    assert secret not in fault


def test_text_that_cannot_be_written_is_rejected() -> None:
    ((_, fault),) = check_inputs(LOCATED, {"topic": "\ud800"})[1]
    assert "UTF-8" in fault


def test_workflow_without_declared_inputs_accepts_any_texts() -> None:
    located = LocatedWorkflow(document("in>a", "a>out"))
    assert check_inputs(located, {"message": "hi"}) == ({"message": "hi"}, [])
    assert check_inputs(located, {"message": 3})[1]


def test_texts_are_converted_to_input_types() -> None:
    texts = {"topic": "7", "days": "7", "is_long": "true", "file": "7", "other": "7"}
    assert from_texts(LOCATED.workflow, texts) == {
        "topic": "7",
        "days": 7,
        "is_long": True,
        "file": "7",
        "other": "7",
    }
    strange = {"days": "2.5", "is_long": "yes"}
    assert from_texts(LOCATED.workflow, strange) == {"days": 2.5, "is_long": "yes"}
    assert from_texts(LOCATED.workflow, {"days": "many"}) == {"days": "many"}


def test_node_without_any_input_is_a_fault() -> None:
    silent = LocatedWorkflow(document("in>a", "a>b", "b>out", prompts={"a": None, "b": None}))
    ((line, fault),) = untold(silent, {})
    assert (line, "'a' has no prompt_template" in fault) == (None, True)
    assert untold(silent, {"message": "hi"}) == []


def test_flow_inputs_are_encoded_as_json() -> None:
    assert inputs_text({"a": 1, "b": "ü"}) == '{"a":1,"b":"ü"}\n'
