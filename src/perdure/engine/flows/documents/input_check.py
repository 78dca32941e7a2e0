"""Check the inputs of a workflow document before a run begins."""

from __future__ import annotations

import math
from collections.abc import Mapping

from perdure.engine.flows.documents.structure import DocumentFault
from perdure.errors import SecretPasted
from perdure.secrets.pasted_keys import apply_paste_policy
from perdure.workflow.document import AgentNode, InputNode, InputType, RunInput, Workflow
from perdure.workflow.reader import LocatedWorkflow
from perdure.workflow.substitution import text_of

_EXPECTED: Mapping[InputType, str] = {
    "string": "a text",
    "number": "a number",
    "boolean": "true or false",
    "file_path": "the path of a file",
    "code_diff": "a text",
}


def check_inputs(
    located: LocatedWorkflow, given: Mapping[str, object]
) -> tuple[dict[str, object], list[DocumentFault]]:
    """Return the values of the inputs, including defaults, and the errors in the inputs.

    Shape: there is one fault for each input that is missing, unknown or of the wrong type. A
    workflow that declares no inputs accepts any inputs that are texts.
    """
    lines = located.lines
    inputs = located.workflow.inputs or tuple(RunInput(name) for name in given)
    values: dict[str, object] = {}
    faults: list[DocumentFault] = []
    for declared in inputs:
        line = lines.inputs.get(declared.name)
        value = given.get(declared.name, declared.default)
        if value is None and declared.name not in given:
            if declared.required:
                expected = _EXPECTED[declared.type]
                faults.append((line, f"the input {declared.name!r}, {expected}, is missing"))
            continue
        what = _unfit(declared, value)
        if what is not None:
            faults.append((line, what))
        values[declared.name] = value
    known = ", ".join(each.name for each in inputs)
    names = {each.name for each in inputs}
    strangers = [name for name in given if name not in names]
    faults += [
        (None, f"there is no input {name!r}; the workflow takes: {known}") for name in strangers
    ]
    return values, faults


def unfit_defaults(located: LocatedWorkflow) -> list[DocumentFault]:
    """Return a fault for each invalid default value, because runs that use it would fail."""
    found = [
        (located.lines.inputs.get(declared.name), _unfit(declared, declared.default))
        for declared in located.workflow.inputs
        if declared.default is not None
    ]
    return [(line, what) for line, what in found if what is not None]


def from_texts(workflow: Workflow, given: Mapping[str, str]) -> dict[str, object]:
    """Convert the texts in `given` to the declared types; a text that does not fit stays a text."""
    types: dict[str, InputType] = {each.name: each.type for each in workflow.inputs}
    return {name: _read(text, types.get(name, "string")) for name, text in given.items()}


def _read(text: str, type: InputType) -> object:
    if type == "boolean" and text in ("true", "false"):
        return text == "true"
    if type == "number":
        for number in (int, float):
            try:
                return number(text)
            except ValueError:
                continue
    return text


def _unfit(declared: RunInput, value: object) -> str | None:
    """Return why `value` is invalid for the input `declared`, without quoting credentials."""
    if not _fits(declared.type, value):
        return f"the input {declared.name!r} has to be {_EXPECTED[declared.type]}"
    if isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            return f"the input {declared.name!r} is no text that can be kept as UTF-8"
        try:
            apply_paste_policy(value, "refuse", f"the input {declared.name!r}")
        except SecretPasted as error:
            return str(error)
    return None


def _fits(type: InputType, value: object) -> bool:
    if type == "boolean":
        return isinstance(value, bool)
    if type == "number":
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return abs(value) < 2**63 if isinstance(value, int) else math.isfinite(value)
    return isinstance(value, str) and (type != "file_path" or bool(value.strip()))


def untold(located: LocatedWorkflow, inputs: Mapping[str, object]) -> list[DocumentFault]:
    """Return a fault for each agent node whose first message would be empty."""
    workflow, lines = located.workflow, located.lines
    entries = {node.id for node in workflow.nodes if isinstance(node, InputNode)}
    faults: list[DocumentFault] = []
    for node in workflow.nodes:
        if not isinstance(node, AgentNode) or (node.prompt_template or "").strip():
            continue
        before = [edge.source for edge in workflow.edges if edge.target == node.id]
        has_input = any(source in entries for source in before)
        if all(source in entries for source in before) and not (has_input and inputs):
            what = f"{node.id!r} has no prompt_template and would be told nothing: give an input"
            faults.append((lines.nodes.get(node.id), what))
    return faults


def inputs_text(inputs: Mapping[str, object]) -> str:
    """Return `inputs` as the text that an input node hands over."""
    return text_of(dict(inputs)) + "\n"
