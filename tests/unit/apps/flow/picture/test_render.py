"""A graph as lines, as Mermaid, as dot."""

from __future__ import annotations

from perdure.apps.flow.picture.render import lines, render
from perdure.apps.terminal.style import Style
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph
from perdure.session.flows.kinds import NodeParked
from tests.fakes.flow_log import FlowLog, graph

PLAIN = Style()
LINE = graph("owner-intake>build", "build>end", **{"owner-intake": "owner", "end": "owner"})


def test_graph_shows_special_attributes_of_nodes() -> None:
    special = Graph(
        "g",
        (FlowNode("b", "owner", awaits_all_inputs=True), FlowNode("a", "owner", has_human=True)),
        (FlowEdge("a", "b"),),
    )
    assert list(lines(special, PLAIN, 80)) == [
        "a  owner  human-colab",
        "    ─▶ b",
        "b  owner  await-all-inputs",
    ]


def test_flow_shows_node_status_and_newest_artifacts() -> None:
    log = FlowLog(LINE)
    log.claim("owner-intake").hand("owner-intake", "build", artifact="plan.md")
    log.claim("build", "owner-intake=>build")
    shown = list(lines(LINE, PLAIN, 80, log.state, {"build": "I build.", "owner": "Done."}))
    assert shown == [
        "✓ owner-intake  owner  completed",
        "    ─▶ build  ✓ plan.md",
        "● build         build  active",
        "    │ I build.",
        "    ─▶ end",
        "○ end           owner  pending",
    ]


def test_backward_handoffs_and_waits_are_shown() -> None:
    log = FlowLog(LINE)
    log.work("owner-intake", "build").claim("build", "owner-intake=>build")
    log.hand("build", "owner-intake", artifact="why.md")
    shown = list(lines(LINE, PLAIN, 80, log.state))
    assert shown[:3] == [
        "↩ owner-intake  owner  backward",
        "    ◀─ build  sent back: why.md",
        "↩ build         build  backward",
    ]
    log.claim("owner-intake", "build=>owner-intake")
    log.add(NodeParked("owner-intake", "owner", "autonomous-abort"))
    assert "? owner-intake  owner  awaiting human: autonomous-abort" in lines(
        LINE, PLAIN, 80, log.state
    )


def test_graph_loses_no_information_in_ascii_and_on_narrow_terminals() -> None:
    log = FlowLog(LINE).work("owner-intake", "build")
    shown = list(lines(LINE, Style(is_unicode=False), 60, log.state))
    assert shown[0] == "+ owner-intake  owner  completed"
    assert all(len(line) <= 60 for line in shown)
    assert all(line.isascii() for line in shown)


def test_graph_shows_node_state_by_symbols_with_and_without_colours() -> None:
    log = FlowLog(LINE).claim("owner-intake")
    (first, *_) = lines(LINE, Style(is_coloured=True), 80, log.state)
    assert "\x1b[" in first
    assert "●" in first


def test_quotes_in_labels_are_escaped_in_mermaid_and_dot() -> None:
    odd = Graph(
        'say "hi"', (FlowNode('a"b', "owner"), FlowNode("c", "owner")), (FlowEdge('a"b', "c"),)
    )
    mermaid = list(render(odd, "mermaid", PLAIN, 80))
    assert mermaid == [
        "flowchart TD",
        '  n0["a#quot;b<br/>owner"]',
        '  n1["c<br/>owner"]',
        "  n0 --> n1",
    ]
    dot = list(render(odd, "dot", PLAIN, 80))
    assert dot[0] == 'digraph "say \\"hi\\"" {'
    assert '  "a\\"b" -> "c";' in dot


def test_node_state_sets_the_colour_in_mermaid_and_dot() -> None:
    state = FlowLog(LINE).claim("owner-intake").state
    assert '  n0["owner-intake<br/>owner"]:::active' in render(LINE, "mermaid", PLAIN, 80, state)
    assert any('fillcolor="#ffe08a"' in line for line in render(LINE, "dot", PLAIN, 80, state))


def test_graph_with_a_cycle_is_drawn() -> None:
    circle = graph("a>b", "b>a")
    assert len(list(lines(circle, PLAIN, 80))) == 4
