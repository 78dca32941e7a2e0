"""``perdure flow run`` for a workflow document, which is recognized by its content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.options import named_values
from perdure.apps.flow.documents.agents import cast_of
from perdure.apps.flow.roles import RoleOptions
from perdure.apps.terminal.output import remark
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import safe
from perdure.client.flows.documents.start import runnable_agents
from perdure.engine.flows.documents.input_check import from_texts, untold
from perdure.engine.flows.documents.structure import in_order
from perdure.errors import InvalidWorkflow
from perdure.session.flows.kinds import RunSettings
from perdure.session.flows.run import FlowState
from perdure.workflow.reader import LocatedWorkflow

InputsOption = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="NAME=VALUE", help="An input of a workflow document."),
]


class Prepared(msgspec.Struct, frozen=True):
    """A valid workflow: a file for roles, or a document with the agents and inputs it needs."""

    workflow: Path | LocatedWorkflow
    acting: RoleOptions
    settings: RunSettings
    inputs: Mapping[str, object] = {}


def prepare(
    found: LocatedWorkflow,
    workspace: Path,
    given: Sequence[str],
    acting: RoleOptions,
    settings: RunSettings,
) -> Prepared:
    """Validate the document `found` and the inputs `given` to its new flow. Blocks.

    Raises: InvalidWorkflow, which lists every error; ConfigError if an agent file cannot be used;
    UsageMistake if an input is invalid.
    """
    inputs = from_texts(found.workflow, named_values(given, "--input"))
    cast = cast_of(found, acting)
    runnable_agents(cast.located, {agent.id: agent for agent in cast.agents}, workspace)
    for each in cast.remarks:
        remark(each)
    acting = msgspec.structs.replace(acting, agents=cast.agents)
    return Prepared(cast.located, acting, settings, inputs)


def faults_in(found: LocatedWorkflow, workspace: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the errors of the document `found`, and its warnings."""
    cast = cast_of(found, RoleOptions(()))
    inputs = {each.name: "" for each in found.workflow.inputs}
    warnings = (*cast.remarks, *in_order(untold(cast.located, inputs)))
    try:
        runnable_agents(cast.located, {agent.id: agent for agent in cast.agents}, workspace)
    except InvalidWorkflow as error:
        return error.faults, warnings
    return (), warnings


def output_lines(outputs: Mapping[str, object], style: Style) -> Iterator[str]:
    """Format `outputs` as lines: for each output its name, then its value."""
    for name, value in outputs.items():
        yield ""
        yield style.paint(safe(name), "strong")
        text = value if isinstance(value, str) else _json(value)
        yield from (safe(line) for line in text.rstrip().split("\n"))


def output_data(state: FlowState, outputs: Mapping[str, object]) -> dict[str, object]:
    """Return a dict with `outputs` for JSON output; an empty dict for a flow of roles."""
    return {} if state.document is None else {"outputs": dict(outputs)}


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value)).decode()
