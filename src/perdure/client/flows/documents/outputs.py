"""The outputs of a flow that runs a workflow document."""

from __future__ import annotations

from perdure.engine.flows.documents.document_flow import workflow_of
from perdure.engine.flows.documents.turn_end import digest_of
from perdure.session.flows.run import FlowState
from perdure.stores.session_store import SessionStore
from perdure.workflow.document import InputNode, OutputNode


async def outputs_of(store: SessionStore, state: FlowState) -> dict[str, object]:
    """Return the value of each output node by id; {} if the flow does not run a document.

    Shape: each value is the answer of the previous node. If an output node has several previous
    nodes, the value is a mapping from node to answer. For an input node, the inputs of the flow
    count as its answer.
    """
    document = state.document
    if document is None:
        return {}
    workflow = workflow_of(document)
    entries = {node.id for node in workflow.nodes if isinstance(node, InputNode)}
    found: dict[str, object] = {}
    for node in workflow.nodes:
        if not isinstance(node, OutputNode) or node.id not in state.run.visited:
            continue
        values: dict[str, object] = {}
        for source in state.graph.predecessors(node.id):
            digest = digest_of(state, source)
            if source in entries:
                values[source] = document.inputs
            elif digest is not None:
                values[source] = (await store.blob(digest)).decode(errors="replace")
        found[node.id] = next(iter(values.values())) if len(values) == 1 else values
    return found
