from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.engine.flows.files.workflow_file import graph_of, read_workflow
from perdure.engine.flows.files.workflow_text import workflow_text
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph

LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_categories=("Cs",))), max_size=3)


@given(LINES, LINES, st.booleans(), st.booleans())
def test_written_graph_reads_back_unchanged(
    work: list[str], notes: list[str], has_human: bool, awaits_all: bool
) -> None:
    intake = FlowNode(
        "owner-intake",
        "owner",
        tuple(work),
        ("$PLAN", "$RULES"),
        has_human=has_human,
        awaits_all_inputs=awaits_all,
        guidance=tuple(notes),
        inputs=("a",),
        outputs=("b: c",),
        notes=tuple(notes),
    )
    graph = Graph(
        "yes: [no]",
        (intake, FlowNode("end", "owner")),
        (FlowEdge("owner-intake", "end"),),
        "# not a comment",
        tuple(line for line in notes if line.strip()),
    )
    assert graph_of(read_workflow(workflow_text(graph), "w"), "w") == graph


def test_graph_of_one_node_has_no_edges() -> None:
    graph = Graph("alone", (FlowNode("owner-intake", "owner"),))
    assert graph_of(read_workflow(workflow_text(graph), "w"), "w") == graph
