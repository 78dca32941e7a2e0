"""What a node of a workflow document is told when it begins: its prompt, filled in.

A prompt with placeholders says itself what it needs. One without is followed by what is handed to
the node and was not said in its conversation; so is a node without a prompt, by all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perdure.engine.flows.prompts.entry import fence
from perdure.session.flows.graph import Graph
from perdure.session.flows.kinds import DocumentBound
from perdure.session.ids import StreamId
from perdure.workflow.document import AgentNode
from perdure.workflow.expressions import Template, template_of
from perdure.workflow.substitution import Fillings, ReadFile, fill_template, text_of


def nodes_named(node: AgentNode, graph: Graph) -> tuple[str, ...]:
    """The nodes whose answers `node` may be told."""
    wanted = [p.name for p in _template(node).placeholders if p.root == "run.outputs"]
    return tuple(dict.fromkeys((*wanted, *graph.predecessors(node.id))))


def task_message(
    document: DocumentBound,
    graph: Graph,
    node: AgentNode,
    answers: Mapping[str, str],
    *,
    run_id: StreamId,
    read_file: ReadFile,
) -> str:
    """What `node` begins with. `answers` are those of `nodes_named` that agents gave.

    Raises: ConfigError where its prompt cannot be filled in.
    """
    template = _template(node)
    fillings = Fillings(document.inputs, document.context, answers, run_id)
    prompt = fill_template(template, fillings, read_file)
    if template.placeholders:
        return prompt
    told = _handover_lines(document, graph, node, answers, is_all=not prompt.strip())
    return "\n\n".join([*([prompt] if prompt.strip() else []), *told])


def _template(node: AgentNode) -> Template:
    return template_of(node.prompt_template or "")


def _handover_lines(
    document: DocumentBound,
    graph: Graph,
    node: AgentNode,
    answers: Mapping[str, str],
    *,
    is_all: bool,
) -> Iterator[str]:
    """What its predecessors hand over; without `is_all` nothing that it heard already."""
    roles = {each.id: each.role for each in graph.nodes}
    for source in graph.predecessors(node.id):
        if source in document.passive:
            for name, value in document.inputs.items():
                yield f"## Input `{name}`\n{fence(text_of(value))}"
        elif source in answers and (is_all or roles[source] != roles[node.id]):
            yield f"## From `{source}`\n{fence(answers[source].rstrip())}"
