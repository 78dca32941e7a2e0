"""Check a workflow document and prepare the start of its flow.

All errors of the file are reported together, then all errors of the inputs. The values of templates
are computed here once and stored in the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from perdure.client.agents.agent import Agent
from perdure.client.conversation.workspace import Workspace, in_folder
from perdure.client.flows.documents.agents import bound_agents
from perdure.engine.flows.documents.answers import kept_answer
from perdure.engine.flows.documents.document_flow import bind_document, graph_of
from perdure.engine.flows.documents.input_check import (
    check_inputs,
    inputs_text,
    unfit_defaults,
    untold,
)
from perdure.engine.flows.documents.structure import DocumentFault, faults_of, in_order
from perdure.engine.flows.documents.turn_end import input_path
from perdure.errors import ConfigError, InvalidWorkflow, SecretPasted, ToolError
from perdure.secrets.pasted_keys import apply_paste_policy
from perdure.session.flows.graph import Graph
from perdure.session.flows.kinds import DocumentBound, HandoffTarget, NodePassed
from perdure.session.ids import StreamId, blob_hash
from perdure.tools.builtin.files import text_of
from perdure.tools.paths.jail import Jail
from perdure.tools.paths.project_files import read_workflow
from perdure.workflow.document import AgentNode, InputNode, Workflow
from perdure.workflow.expressions import template_of
from perdure.workflow.reader import LocatedWorkflow, is_document, parse_located
from perdure.workflow.substitution import Fillings, ReadFile, fill_template
from perdure.workflow.templates import context_names
from perdure.workflow.writer import serialize

READING = "read_file"
"""The tool name under which errors of files in templates are reported."""


class StartPlan(msgspec.Struct, frozen=True):
    """The entries of a new flow after ``flow_started``; they refer to the contents in `blobs`.

    `start` are the nodes with an agent and without predecessors.
    """

    graph: Graph
    start: tuple[str, ...]
    document: DocumentBound
    passed: tuple[NodePassed, ...]
    blobs: tuple[bytes, ...]

    def write_inputs(self, record: Path) -> None:
        """Write the inputs as files of the record folder. Blocks the thread.

        Raises: ConfigError.
        """
        for node, content in zip(self.passed, self.blobs, strict=False):
            kept = kept_answer(record, input_path(node.node), content.decode())
            if kept is not None and kept.artifact.problem is not None:
                raise ConfigError(f"the inputs: {kept.artifact.problem}")


def document_in(
    workflow: Graph | Workflow | LocatedWorkflow | str | os.PathLike[str],
) -> LocatedWorkflow | None:
    """Return `workflow` if it is a document, or the document in the file `workflow`; else None.

    Raises: InvalidWorkflow, which lists every error with its line; ConfigError for an unreadable
    file.
    """
    if isinstance(workflow, Graph):
        return None
    if isinstance(workflow, Workflow):
        return LocatedWorkflow(workflow, name=workflow.id)
    if isinstance(workflow, LocatedWorkflow):
        return workflow
    path = Path(workflow)
    text = read_workflow(path)
    return parse_located(text, path.name) if is_document(text) else None


def document_text(found: LocatedWorkflow) -> str:
    """Return the text of the file of `found`, or the workflow as YAML if there is no file."""
    return serialize(found.workflow) if found.text is None else found.text


def runnable_agents(
    found: LocatedWorkflow, given: Mapping[str, Agent], workspace: Path
) -> dict[str, Agent]:
    """Check that the workflow `found` can run, and return its agents.

    `given` contains the program's agents, by id. Raises: InvalidWorkflow, which lists every error.
    """
    agents, faults = bound_agents(found, given)
    names = in_folder(Workspace(), str(workspace)).names
    faults += faults_of(found, given, names)
    faults += unfit_defaults(found)
    keys = dict.fromkeys((entry.key for entry in found.workflow.context), "")
    faults += _unfilled(found, agents, {**names, **keys})
    if not faults:
        faults += _fixed_context(found, workspace)
    if faults:
        raise InvalidWorkflow(found.name, in_order(faults))
    return agents


def _fixed_context(found: LocatedWorkflow, workspace: Path) -> list[DocumentFault]:
    """Return the errors in those context entries that do not depend on inputs.

    Blocks the thread.
    """
    faults: list[DocumentFault] = []
    for entry in found.workflow.context:
        template = template_of(entry.value)
        if any(placeholder.root == "inputs" for placeholder in template.placeholders):
            continue
        try:
            value = fill_template(template, Fillings(run_id="run"), file_reader(workspace))
            apply_paste_policy(value, "refuse", f"ctx.{entry.key}")
        except ConfigError as error:
            what = str(error) if isinstance(error, SecretPasted) else f"ctx.{entry.key}: {error}"
            faults.append((found.lines.context.get(entry.key), what))
    return faults


def plan_start(
    found: LocatedWorkflow,
    agents: Mapping[str, Agent],
    *,
    workspace: Path,
    flow: StreamId,
    inputs: Mapping[str, object],
) -> StartPlan:
    """Plan the start of the flow `flow` that runs the checked workflow `found`. Blocks the thread.

    Raises: ConfigError, which lists all invalid inputs and files; SecretPasted if a text contains a
    credential.
    """
    values, faults = check_inputs(found, inputs)
    faults += [] if faults else untold(found, values)
    context, more = ({}, []) if faults else _context(found, workspace, flow, values)
    if faults or more:
        told = "; ".join(in_order([*faults, *more]))
        raise ConfigError(f"{found.name} cannot be run with that: {told}")
    graph = graph_of(found.workflow)
    document = bind_document(
        found.workflow, values, context, {ref: agent.snapshot() for ref, agent in agents.items()}
    )
    content = inputs_text(values).encode()
    passed = [
        NodePassed(
            node.id,
            tuple(
                HandoffTarget(after, input_path(node.id), blob_hash(content))
                for after in graph.successors(node.id)
            ),
        )
        for node in found.workflow.nodes
        if isinstance(node, InputNode)
    ]
    start = tuple(
        node.id
        for node in graph.nodes
        if node.id not in document.passive and not graph.predecessors(node.id)
    )
    return StartPlan(graph, start, document, tuple(passed), (content,) if passed else ())


def _context(
    found: LocatedWorkflow, workspace: Path, flow: StreamId, inputs: Mapping[str, object]
) -> tuple[dict[str, str], list[DocumentFault]]:
    """Return the values of ``{{ctx.name}}`` that are the same in the whole flow, and the errors."""
    fillings = Fillings(inputs, run_id=flow)
    own: dict[str, str] = {}
    faults: list[DocumentFault] = []
    for entry in found.workflow.context:
        try:
            own[entry.key] = fill_template(
                template_of(entry.value), fillings, file_reader(workspace)
            )
        except ConfigError as error:
            faults.append((found.lines.context.get(entry.key), f"ctx.{entry.key}: {error}"))
        else:
            apply_paste_policy(own[entry.key], "refuse", f"ctx.{entry.key}")
    place = in_folder(Workspace(variables=own), str(workspace))
    return place.names, faults


def _unfilled(
    found: LocatedWorkflow, agents: Mapping[str, Agent], names: dict[str, str]
) -> Iterator[DocumentFault]:
    """Return the names in agents' instructions or tool descriptions that are not in `names`."""
    known = ", ".join(sorted(names))
    for ref, agent in agents.items():
        line = _line_of(found, ref, agent)
        for name in context_names(agent.instructions):
            if name not in names:
                what = f"the instructions of agent {agent.id!r} use {{{{ctx.{name}}}}}"
                yield line, f"{what}, which the workflow does not define; there is: {known}"
        try:
            agent.tools_in(Workspace(variables=names))
        except ConfigError as error:
            yield line, str(error)


def _line_of(found: LocatedWorkflow, ref: str, agent: Agent) -> int | None:
    """Return the line in `found` of `agent`'s instructions, or of the first node that has `ref`."""
    own = {"id": ref, "system_prompt": agent.instructions}
    is_own = any(own.items() <= each.items() for each in found.workflow.agents)
    node = found.lines.agents.get(ref) if is_own else None
    if node is not None:
        texts = [value.line for key, value in node.pairs if key.text == "system_prompt"]
        return texts[0] if texts else node.line
    users = (
        node
        for node in found.workflow.nodes
        if isinstance(node, AgentNode) and node.agent_ref == ref
    )
    return next((found.lines.nodes.get(user.id) for user in users), None)


def file_reader(workspace: Path) -> ReadFile:
    """Return a function that reads template files; it rejects files outside of `workspace`."""

    def read(path: str) -> str:
        try:
            with Jail(workspace, READING).file(path) as descriptor:
                return text_of(descriptor)
        except (ToolError, ValueError) as error:
            raise ConfigError(f"the file {path!r} cannot be read: {error}") from None

    return read
