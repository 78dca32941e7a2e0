"""``perdure flow run`` and ``resume`` of a workflow document, recognized by its content."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.options import named_values
from perdure.apps.flow.documents.agents import cast_of, recast
from perdure.apps.flow.options import flows_of
from perdure.apps.flow.roles import RoleOptions
from perdure.apps.terminal.output import remark
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import safe
from perdure.client.flows.documents.start import runnable_agents
from perdure.client.flows.flow import Flow
from perdure.client.store import Store
from perdure.engine.flows.documents.input_check import from_texts, untold
from perdure.engine.flows.documents.structure import in_order
from perdure.errors import InvalidWorkflow
from perdure.session.flows.kinds import Configuring, ConsentMode, Dimension, RunSettings
from perdure.session.flows.run import FlowState
from perdure.workflow.reader import LocatedWorkflow

InputsOption = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="NAME=VALUE", help="An input of a workflow document."),
]


class Given(msgspec.Struct, frozen=True):
    """The command line of a new flow.

    `configuring` and `roles` apply only to flows of roles; `settings` are stored for `resume`.
    """

    workspace: Path
    acting: RoleOptions
    inputs: Sequence[str] = ()
    record: Path | None = None
    project: str | None = None
    id: str | None = None
    consent: ConsentMode = "no-access"
    configuring: Mapping[Dimension, Configuring] = {}
    roles: Sequence[str] = ()
    settings: RunSettings = RunSettings()


class Prepared(msgspec.Struct, frozen=True):
    """A valid document with its agents and inputs."""

    located: LocatedWorkflow
    acting: RoleOptions
    inputs: dict[str, object]


def prepare(found: LocatedWorkflow, given: Given) -> Prepared:
    """Check the document `found` before its flow exists. Blocks.

    Raises: InvalidWorkflow with every error; ConfigError; UsageMistake.
    """
    inputs = from_texts(found.workflow, named_values(given.inputs, "--input"))
    cast = cast_of(found, given.acting)
    runnable_agents(cast.located, {agent.id: agent for agent in cast.agents}, given.workspace)
    for each in cast.remarks:
        remark(each)
    acting = msgspec.structs.replace(given.acting, agents=cast.agents)
    return Prepared(cast.located, acting, inputs)


@asynccontextmanager
async def start_flow(store: Store, document: Prepared, given: Given) -> AsyncGenerator[Flow]:
    """Start a flow of a document.

    Raises: ConfigError; SecretPasted; SessionExists.
    """
    async with flows_of(store, document.acting, is_run=True) as flows:
        yield await flows.start(
            document.located,
            workspace=given.workspace,
            project=given.project,
            id=given.id,
            record_folder=None if given.record is None else given.record.absolute(),
            consent=given.consent,
            inputs=document.inputs,
            settings=given.settings,
        )


@asynccontextmanager
async def resume_flow(
    store: Store,
    state: FlowState,
    acting: RoleOptions,
    workspace: Path | None,
    settings: RunSettings | None,
) -> AsyncGenerator[Flow]:
    """Open the flow at `state` to continue it.

    Raises: ConfigError; FlowRefusal when its files are missing.
    """
    assert state.document is not None
    agents = recast(state.document, acting, is_foreign=state.is_foreign)
    async with flows_of(
        store, msgspec.structs.replace(acting, agents=agents), is_run=True
    ) as flows:
        yield await flows.open(state.run.flow_id, workspace=workspace, settings=settings)


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
    """Format `outputs`, each below its name."""
    for name, value in outputs.items():
        yield ""
        yield style.paint(safe(name), "strong")
        text = value if isinstance(value, str) else _json(value)
        yield from (safe(line) for line in text.rstrip().split("\n"))


def output_data(state: FlowState, outputs: Mapping[str, object]) -> dict[str, object]:
    """Return the outputs as a JSON field; none for a flow of roles."""
    return {} if state.document is None else {"outputs": dict(outputs)}


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value)).decode()
