from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.engine.flows.files.workflow_file import graph_of, read_workflow
from perdure.errors import InvalidWorkflow
from perdure.session.flows.graph import FlowEdge, FlowNode

GOOD = """
workflow:
  name: Ship it
  summary: From a wish to a release.
  nodes:
    - id: owner-intake
      role: owner
      work: [Say what is wanted.]
    - id: build
      role: developer
      required_readings: [$CONVENTIONS]
      work:
        - Build it.
      human-colab: true
    - id: accept
      role: owner
      await-all-inputs: true
  edges:
    - {from: owner-intake, to: build}
    - {from: build, to: accept}
"""


def test_workflow_nodes_are_read_in_file_order() -> None:
    graph = graph_of(read_workflow(GOOD, "w"), "w")
    assert graph.name == "Ship it"
    assert [node.id for node in graph.nodes] == ["owner-intake", "build", "accept"]
    assert graph.node("build") == FlowNode(
        "build", "developer", ("Build it.",), ("$CONVENTIONS",), has_human=True
    )
    assert graph.edges == (FlowEdge("owner-intake", "build"), FlowEdge("build", "accept"))
    accept = graph.node("accept")
    assert accept is not None
    assert accept.awaits_all_inputs


def test_older_formats_of_workflow_files_are_read() -> None:
    text = """
workflow:
  name: Old
  invariants: [Never push.]
  nodes:
    - id: owner-intake
      role: owner
      guidance: Look around first.
      inputs: [the wish]
      outputs: [a plan]
      notes: [none]
      human-collaborative: true
  edges: []
"""
    graph = graph_of(read_workflow(text, "w"), "w")
    node = graph.nodes[0]
    assert node.guidance == ("Look around first.",)
    assert (node.inputs, node.outputs, node.has_human) == (("the wish",), ("a plan",), True)
    assert graph.invariants == ("Never push.",)


def test_all_faults_of_a_workflow_file_are_reported_with_lines() -> None:
    text = """workflow:
  summary: ""
  nodes:
    - id: a
      colour: red
      work: 7
    - role: owner
      human-colab: perhaps
      required_readings: [PLAIN]
  edges:
    - {from: a}
"""
    with pytest.raises(InvalidWorkflow) as caught:
        read_workflow(text, "record/workflow.yaml")
    assert caught.value.faults == (
        "line 2: 'name' is missing",
        "line 2: 'summary' is empty",
        (
            "line 5: 'colour' is unknown here (known: id, role, work, required_readings, guidance, "
            "inputs, outputs, notes, human-colab, human-collaborative, human_collaborative, "
            "await-all-inputs)"
        ),
        "line 6: expected a list, found a number",
        "line 7: 'id' is missing",
        "line 8: expected true or false, found text",
        "line 9: 'PLAIN' is no name of the index: expected $NAME",
        "line 11: 'to' is missing",
    )


def test_missing_node_fields_come_from_the_project_workflow() -> None:
    canonical = read_workflow(GOOD, "main")
    record = read_workflow(
        """
workflow:
  name: Small
  nodes:
    - {id: owner-intake}
    - {id: build, work: [Build half of it.]}
    - {id: done, role: owner}
  edges:
    - {from: owner-intake, to: build}
    - {from: build, to: done}
""",
        "record",
    )
    graph = graph_of(record, "record", canonical)
    assert [node.id for node in graph.nodes] == ["owner-intake", "build", "done"]
    build = graph.node("build")
    assert build is not None
    assert (build.role, build.work, build.has_human) == ("developer", ("Build half of it.",), True)


def test_invalid_node_of_a_workflow_file_is_rejected() -> None:
    text = "workflow: {name: N, nodes: [{id: owner-intake}], edges: []}"
    with pytest.raises(InvalidWorkflow, match="line 1: 'role' is missing"):
        graph_of(read_workflow(text, "w"), "w")
    text = "workflow: {name: N, nodes: [{id: first, role: owner}], edges: []}"
    with pytest.raises(InvalidWorkflow, match="it must be 'owner-intake'"):
        graph_of(read_workflow(text, "w"), "w")


def test_graph_faults_are_reported_with_their_lines() -> None:
    text = """workflow:
  name: N
  nodes:
    - {id: owner-intake, role: owner}
    - {id: build, role: Developer!}
    - id: build
      role: owner
  edges:
    - {from: owner-intake, to: biuld}
    - from: build
      to: build
    - {from: owner-intake, to: build}
    - {from: owner-intake, to: build}
"""
    with pytest.raises(InvalidWorkflow) as caught:
        graph_of(read_workflow(text, "w"), "w")
    assert [fault[:50] for fault in caught.value.faults] == [
        "line 5: node 'build' has the role 'Developer!': us",
        "line 6: two nodes are called 'build'",
        "line 9: the edge owner-intake=>biuld names 'biuld'",
        "line 10: the edge build=>build leads from a node t",
        "line 13: the edge owner-intake=>build is there twi",
    ]
    text = """workflow:
  name: N
  nodes:
    - {id: owner-intake, role: owner}
    - {id: a, role: dev}
    - {id: b, role: dev}
    - {id: alone, role: dev}
  edges:
    - {from: owner-intake, to: a}
    - {from: a, to: b}
    - {from: b, to: a}
"""
    with pytest.raises(InvalidWorkflow) as caught:
        graph_of(read_workflow(text, "w"), "w")
    assert caught.value.faults == (
        "line 7: nothing is handed to node 'alone'; only 'owner-intake' may begin the work",
        "line 7: node 'alone' hands over to nobody, so its role must be 'owner'",
        "line 11: the edges go round in a circle: a => b => a",
    )


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(InvalidWorkflow):
        assert graph_of(read_workflow(text, "w"), "w").nodes
