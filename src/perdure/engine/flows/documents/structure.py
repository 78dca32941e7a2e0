"""Find the errors in the graph, the templates and the agents of a workflow document.

All errors are reported together, each with its line if the file is known.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from perdure.engine.flows.documents.document_flow import graph_of
from perdure.engine.flows.rules.structure import cycle_in
from perdure.session.flows.graph import ARROW, Graph
from perdure.workflow.document import AgentNode, InputNode, OutputNode, RunInput, Workflow
from perdure.workflow.expressions import Placeholder, template_of
from perdure.workflow.reader import LocatedWorkflow

DocumentFault = tuple[int | None, str]
"""A fault in a workflow document: its line (None if unknown) and its text."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def in_order(faults: Collection[DocumentFault]) -> tuple[str, ...]:
    """Return `faults` as sentences, in the order of their lines."""
    ordered = sorted(faults, key=lambda fault: fault[0] or 0)
    return tuple(what if line is None else f"line {line}: {what}" for line, what in ordered)


def faults_of(
    located: LocatedWorkflow, agents: Collection[str], names: Collection[str]
) -> list[DocumentFault]:
    """Return the reasons why the workflow cannot be run; empty if it can be run.

    `agents` are the ids of agents that are available although the workflow does not define them.
    `names` are valid in ``{{ctx.name}}``, in addition to the names in the workflow's own context.
    """
    return [
        *_nodes(located),
        *_edges(located),
        *_agents(located, agents),
        *_Templates(located, names).faults(),
    ]


def _nodes(located: LocatedWorkflow) -> Iterator[DocumentFault]:
    workflow, lines = located.workflow, located.lines
    for node in workflow.nodes:
        if not _ID.fullmatch(node.id):
            what = f"{node.id!r} cannot be the id of a node: use letters, digits, -, _ and ."
            yield lines.nodes.get(node.id), what
    entries = [node for node in workflow.nodes if isinstance(node, InputNode)]
    for node in entries[1:]:
        yield lines.nodes.get(node.id), f"{node.id!r} is a second input node; one is enough"
    ends = [node for node in workflow.nodes if isinstance(node, OutputNode)]
    if not ends:
        yield None, "there is no output node, so nothing would come out: add one"
    for node in ends:
        if not any(edge.target == node.id for edge in workflow.edges):
            yield lines.nodes.get(node.id), f"no edge leads to the output {node.id!r}"


def _edges(located: LocatedWorkflow) -> Iterator[DocumentFault]:
    workflow, lines = located.workflow, located.lines
    kinds = {node.id: type(node) for node in workflow.nodes}
    seen: set[tuple[str, str]] = set()
    for number, edge in enumerate(workflow.edges):
        line = lines.edges[number] if number < len(lines.edges) else None
        if kinds.get(edge.target) is InputNode:
            yield line, f"nothing can be handed to the input {edge.target!r}"
        if kinds.get(edge.source) is OutputNode:
            yield line, f"the output {edge.source!r} hands nothing over"
        if (edge.source, edge.target) in seen:
            yield line, f"the edge from {edge.source!r} to {edge.target!r} is there twice"
        seen.add((edge.source, edge.target))
    circle = cycle_in(graph_of(workflow))
    if circle:
        yield None, f"the edges go round in a circle: {f' {ARROW} '.join(circle)}"


def _agents(located: LocatedWorkflow, known: Collection[str]) -> Iterator[DocumentFault]:
    workflow, lines = located.workflow, located.lines
    own = {str(agent.get("id", "")) for agent in workflow.agents}
    told: set[str] = set()
    for node in workflow.nodes:
        if not isinstance(node, AgentNode) or node.agent_ref in own | set(known) | told:
            continue
        told.add(node.agent_ref)
        there = ", ".join(sorted(own | set(known))) or "none"
        what = (
            f"there is no agent {node.agent_ref!r}: define it under `agents` or in a file "
            f"{node.agent_ref}.agent.yaml, or give the runtime an agent of that id "
            f"(there are: {there})"
        )
        yield lines.nodes.get(node.id), what


class _Templates:
    """Checks the templates of one workflow: only some names are valid in placeholders."""

    def __init__(self, located: LocatedWorkflow, names: Collection[str]) -> None:
        self._workflow = located.workflow
        self._lines = located.lines
        self._inputs: Mapping[str, RunInput] = {each.name: each for each in self._workflow.inputs}
        self._context = {*names, *(entry.key for entry in self._workflow.context)}
        self._graph = graph_of(self._workflow)

    def faults(self) -> Iterator[DocumentFault]:
        """Yield the faults of the templates."""
        for entry in self._workflow.context:
            line = self._lines.context.get(entry.key)
            for what in self._of(entry.value, None):
                yield line, f"ctx.{entry.key}: {what}"
        for node in self._workflow.nodes:
            if isinstance(node, AgentNode) and node.prompt_template is not None:
                for what in self._of(node.prompt_template, node.id):
                    yield self._lines.prompts.get(node.id), what

    def _of(self, text: str, node: str | None) -> Iterator[str]:
        template = template_of(text)
        yield from template.faults
        for placeholder in template.placeholders:
            what = self._unknown(placeholder, node)
            if what is not None:
                yield what

    def _unknown(self, placeholder: Placeholder, node: str | None) -> str | None:
        """Return why `placeholder` is invalid in a template; None if it is valid.

        The template is the prompt of `node`, or an entry of the context if `node` is None.
        """
        name = placeholder.name
        match placeholder.root:
            case "inputs":
                return self._input(placeholder)
            case "ctx" if node is None:
                return f"an entry of the context cannot use ctx.{name}"
            case "ctx" if name not in self._context:
                return f"there is no ctx.{name}; there is: {', '.join(sorted(self._context))}"
            case "run.outputs" if node is None:
                return "no node has run yet when the context is worked out"
            case "run.outputs" if name not in answers_before(self._workflow, self._graph, node):
                return f'run.outputs["{name}"] is no agent node that comes before {node!r}'
            case _:
                return None

    def _input(self, placeholder: Placeholder) -> str | None:
        declared = self._inputs.get(placeholder.name)
        if declared is None:
            known = ", ".join(self._inputs) or "none"
            return f"inputs.{placeholder.name} is not declared under `inputs` (there are: {known})"
        is_there = declared.required or declared.default is not None or placeholder.has_default
        if is_there:
            return None
        return (
            f"inputs.{placeholder.name} may be missing: make it required, give it a default, or "
            'say `| default("...")`'
        )


def answers_before(workflow: Workflow, graph: Graph, node: str | None) -> set[str]:
    """Return the agent nodes whose answers exist when `node` begins."""
    agents = {each.id for each in workflow.nodes if isinstance(each, AgentNode)}
    found: set[str] = set()
    waiting = [] if node is None else [node]
    while waiting:
        for before in graph.predecessors(waiting.pop()):
            if before not in found:
                found.add(before)
                waiting.append(before)
    return (found & agents) - {node or ""}
