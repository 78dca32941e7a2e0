from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perdure.engine.flows.files.graph_file import GraphFile
from perdure.engine.flows.files.workflow_text import workflow_text
from perdure.session.flows.graph import FlowNode, Graph
from tests.fakes.flow_log import FlowLog, graph

LINE = graph("owner-intake>build", "build>end", **{"owner-intake": "owner"}, end="owner")


def drawn(folder: Path, now: Graph | str) -> GraphFile:
    """Write the files of a flow so that they define the graph `now`."""
    text = now if isinstance(now, str) else workflow_text(now)
    (folder / "workflow.yaml").write_text(text)
    return GraphFile(folder, folder)


def with_node(before: Graph, node: FlowNode) -> Graph:
    kept = tuple(node if each.id == node.id else each for each in before.nodes)
    return msgspec.structs.replace(before, nodes=kept)


def test_unchanged_graph_in_files_changes_nothing(tmp_path: Path) -> None:
    found = drawn(tmp_path, LINE).change(FlowLog(LINE).state)
    assert (found.graph, found.faults) == (None, ())


def test_changed_graph_file_becomes_the_new_graph(tmp_path: Path) -> None:
    after = with_node(LINE, FlowNode("build", "build", ("Build it twice.",)))
    found = drawn(tmp_path, after).change(FlowLog(LINE).state)
    assert found.graph == after


def test_graph_file_cannot_remove_a_node_that_has_run(tmp_path: Path) -> None:
    state = FlowLog(LINE).work("owner-intake", "build").state
    found = drawn(tmp_path, graph("owner-intake>end", **{"owner-intake": "owner"}, end="owner"))
    change = found.change(state)
    assert change.graph is None
    assert any("'build'" in fault for fault in change.faults)


def test_faults_of_an_invalid_workflow_file_have_their_line(tmp_path: Path) -> None:
    found = drawn(tmp_path, "workflow:\n  name: x\n  nodes: []\n  edges: []\n  more: 1\n")
    change = found.change(FlowLog(LINE).state)
    assert change.graph is None
    assert any(fault.startswith("line 5") for fault in change.faults)


def test_missing_graph_file_is_reported(tmp_path: Path) -> None:
    change = GraphFile(tmp_path, tmp_path).change(FlowLog(LINE).state)
    assert "workflow.yaml cannot be read" in change.faults[0]


def test_project_workflow_supplies_missing_node_fields(
    tmp_path: Path,
) -> None:
    below = tmp_path / "a-docs" / "workflow"
    below.mkdir(parents=True)
    told = with_node(LINE, FlowNode("build", "build", ("As always.",)))
    (below / "main.yaml").write_text(workflow_text(told))
    assert drawn(tmp_path, LINE).now().graph == told


def test_files_are_read_again_only_when_they_changed(tmp_path: Path) -> None:
    drawing = drawn(tmp_path, LINE)
    assert drawing.now() is drawing.now()


def test_unchanged_workflow_file_is_not_parsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = FlowLog(LINE).state
    (tmp_path / "workflow.yaml").write_text(workflow_text(state.graph))

    def refused(*_: object) -> object:
        raise AssertionError

    drawing = GraphFile(tmp_path, tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("perdure.engine.flows.files.graph_file.drawn_graph", refused)
        drawn = drawing.change(state)
    assert (drawn.graph, drawn.faults) == (None, ())
    assert GraphFile(tmp_path, tmp_path).now().graph == state.graph
