"""Build the message that starts a node of a workflow document from the node's prompt.

If the prompt has placeholders, the message is the prompt with the placeholders replaced. A prompt
without placeholders is followed by the inputs and by those answers of the predecessors that are not
in the node's conversation yet. A node without a prompt receives the inputs and all answers of its
predecessors.
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
    """Return the nodes whose answers the first message of `node` can contain."""
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
    """Return the first message of `node`.

    `answers` maps the agent nodes that `nodes_named` returns to their answers.
    Raises: ConfigError if a placeholder in the prompt has no value.
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
    """Yield the inputs and the answers that the predecessors of `node` hand over.

    Unless `is_all`, answers that are already in the node's conversation are omitted.
    """
    roles = {each.id: each.role for each in graph.nodes}
    for source in graph.predecessors(node.id):
        if source in document.passive:
            for name, value in document.inputs.items():
                yield f"## Input `{name}`\n{fence(text_of(value))}"
        elif source in answers and (is_all or roles[source] != roles[node.id]):
            yield f"## From `{source}`\n{fence(answers[source].rstrip())}"
