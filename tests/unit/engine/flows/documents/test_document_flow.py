"""Nodes of one agent in a line share one conversation; a branch or a join starts another."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from perdure.engine.flows.documents.document_flow import (
    agent_refs,
    bind_document,
    conversations,
    graph_of,
    node_of,
    passive_nodes,
    workflow_of,
    workflow_text_of,
)
from perdure.engine.flows.documents.structure import answers_before
from perdure.session.flows.graph import base_role, is_role
from perdure.workflow.document import AgentNode, Workflow
from perdure.workflow.reader import parse
from tests.fakes.documents import document, documents
from tests.fakes.flow_log import FlowLog


def test_successive_nodes_of_one_agent_share_one_conversation() -> None:
    workflow = document("in>a", "a>b", "b>c", "c>out")
    assert conversations(workflow) == {"a": "helper", "b": "helper", "c": "helper"}


@pytest.mark.parametrize(
    ("edges", "refs", "expected"),
    [
        (("in>a", "a>b", "a>c", "b>out", "c>out"), {}, ["helper", "helper_2", "helper_3"]),
        (("in>a", "in>b", "a>c", "b>c", "c>out"), {}, ["helper", "helper_2", "helper_3"]),
        (("in>a", "a>b", "b>c", "c>out"), {"b": "other"}, ["helper", "other", "helper_2"]),
        (("in>a", "a>b", "a>out", "b>out"), {}, ["helper", "helper"]),
        (("in>a", "in>b", "a>b", "b>out"), {}, ["helper", "helper"]),
    ],
)
def test_node_after_a_branch_or_join_starts_a_new_conversation(
    edges: tuple[str, ...], refs: dict[str, str], expected: list[str]
) -> None:
    names = conversations(document(*edges, prompts=None, **refs))
    assert [names[id] for id in sorted(names)] == expected


def test_graph_has_all_nodes_and_each_join_awaits_all_inputs() -> None:
    graph = graph_of(document("in>a", "in>b", "a>c", "b>c", "c>out"))
    assert [node.id for node in graph.nodes] == ["in", "a", "b", "c", "out"]
    assert [node.id for node in graph.nodes if node.awaits_all_inputs] == ["c"]
    assert (graph.name, graph.nodes[0].role, graph.nodes[4].role) == ("flow", "input", "output")


@given(documents())
def test_nodes_of_one_conversation_never_run_in_parallel(
    drawn: tuple[Workflow, object],
) -> None:
    workflow = drawn[0]
    names, graph = conversations(workflow), graph_of(workflow)
    for node in workflow.nodes:
        if isinstance(node, AgentNode):
            assert is_role(names[node.id])
            assert base_role(names[node.id]) == node.agent_ref
    for one in names:
        for other in names:
            if one != other and names[one] == names[other]:
                before = answers_before(workflow, graph, one)
                assert other in before or one in answers_before(workflow, graph, other)


@given(documents())
def test_workflow_document_of_a_flow_is_restored_from_its_log(
    drawn: tuple[Workflow, object],
) -> None:
    workflow = msgspec.structs.replace(drawn[0], metadata={"transcript": ["long"]})
    said = bind_document(workflow, {"x": 1}, {"c": "d"}, {"helper": {"id": "helper"}})
    again = msgspec.json.decode(msgspec.json.encode(said), type=type(said))
    assert workflow_of(again) == msgspec.structs.replace(workflow, metadata={})
    assert again.passive == passive_nodes(workflow)


def test_nodes_and_agents_are_found_by_name() -> None:
    workflow = document("in>a", "a>b", "b>out", b="other")
    assert agent_refs(workflow) == ("helper", "other")
    assert node_of(workflow, "b") == workflow.nodes[2]
    assert node_of(workflow, "x") is None


def test_workflow_file_text_parses_back_to_the_document() -> None:
    workflow = document("in>a", "a>out")
    log = FlowLog(graph_of(workflow)).add(bind_document(workflow, {}, {}, {}))
    assert parse(workflow_text_of(log.state)) == workflow
    assert "role: " in workflow_text_of(FlowLog(graph_of(workflow)).state)
