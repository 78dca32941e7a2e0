"""A flow's log written by version 1: every later version decodes and folds it identically."""

from __future__ import annotations

from pathlib import Path

import msgspec

from perdure.session.codec import body_of, entry_of_line, line_of
from perdure.session.flows import kinds
from perdure.session.flows.fold import flow_state
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph
from perdure.session.ids import StreamId
from perdure.session.notes import SideBody
from tests.fakes.samples import case

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "v1" / "flows.jsonl"
LINES = GOLDEN.read_bytes().removesuffix(b"\n").split(b"\n")
ENTRIES = [entry_of_line(line) for line in LINES]

FLOW = "20260527T143000123Z-a1b2c3"
OWNER = StreamId(f"{FLOW}__owner")
SELECTOR = StreamId("20260527T143000123Z-a1b2c3__owner__selector-2")
INTAKE = FlowNode(
    "owner-intake",
    "owner",
    ("Plan.",),
    ("$RULES",),
    has_human=True,
    awaits_all_inputs=True,
    guidance=("g",),
    inputs=("i",),
    outputs=("o",),
    notes=("n",),
)
GRAPH = Graph(
    "Ship",
    (INTAKE, FlowNode("build", "developer_2")),
    (FlowEdge("owner-intake", "build"),),
    "All of it",
    ("inv",),
    ("esc",),
)
TARGETS = (kinds.HandoffTarget("build", "plan.md", "sha256-" + "0" * 64),)
DOCUMENT: dict[str, object] = {
    "id": "trip",
    "nodes": [
        {"type": "input", "id": "input"},
        {
            "type": "agent",
            "id": "plan",
            "agent_ref": "helper",
            "prompt_template": "Plan {{inputs.x}}",
            "tools": ["read_file"],
        },
        {"type": "output", "id": "output"},
    ],
    "edges": [
        {"source": "input", "target": "plan"},
        {"source": "plan", "target": "output"},
    ],
    "name": None,
    "agents": [],
    "metadata": {},
}

EXPECTED: tuple[SideBody, ...] = (
    kinds.FlowStarted(
        *("trip", "/w", "/w/record", GRAPH, ("owner-intake",)),
        consent="partial-access",
        feedback="update",
        initialization_mode="takeover",
        update_from_version="0.2",
        update_to_version="0.3",
    ),
    kinds.WorkspaceBound("/v", "/v/record"),
    kinds.WorkflowChanged(GRAPH),
    kinds.NodeClaimed(
        *("owner-intake", "owner", OWNER, "handoff"),
        delivered=("build=>owner-intake",),
        superseded=("owner-intake=>build",),
        text="go",
    ),
    kinds.NodeParked("owner-intake", "owner", "autonomous-abort", "stopped"),
    kinds.NodeContinued("owner-intake"),
    kinds.HumanReplied("owner-intake", "go", "me"),
    kinds.StopAsked("build", "me"),
    kinds.HandoffMade("owner-intake", TARGETS, approved_by="me", warnings=("twice",)),
    kinds.HandoffAwaited("build"),
    kinds.HandoffStaged("owner-intake", "owner", TARGETS, ("twice",)),
    kinds.HandoffDeclined("owner-intake", "owner", "me", "no"),
    kinds.RepairAsked("build", "developer_2", "missing_block", "none", "Write one.", 2),
    kinds.ConsentChanged("me", "full-access", "bash", "make test", is_revoked=True),
    kinds.RoleConfigured("owner", "p:m", ("search",), ("read_file",), is_automatic=True),
    kinds.ForwardPassClosed("build"),
    kinds.ImprovementChosen("graph-based", "me", "improvement.yaml", GRAPH),
    kinds.ImprovementClaimed("owner", OWNER, "go"),
    kinds.ImprovementParked("owner", "prompt-human", "why?"),
    kinds.FindingsMade("owner", "findings/owner-findings.md", "sha256-" + "1" * 64),
    kinds.FeedbackAsked("f.md"),
    kinds.FeedbackDecided(is_granted=True, by="me"),
    kinds.FlowCompleted(),
    kinds.FlowImported({"flowId": "f"}, Graph("g", ()), {"owner": OWNER}),
    kinds.FlowImported({"flowId": "f"}, Graph("g", ()), {}, Graph("i", ())),
    kinds.DocumentBound(
        DOCUMENT,
        ("input", "output"),
        {"x": "a trip"},
        {"town": "Vienna"},
        {"helper": {"id": "helper", "model": "scripted:echo"}},
    ),
    kinds.NodePassed("owner-intake", TARGETS),
    kinds.FlowStarted("trip", "/w", "/w/record", Graph("g", ()), (), configuring="ask"),
    kinds.NodeParked(
        *("build", "developer_2", "role-configuration", "choose"),
        offers=kinds.Offers(("p:m",), {"tests": "How we test."}),
    ),
    kinds.RoleConfigured("developer_2", by="me"),
    kinds.FlowStarted(
        *("trip", "/w", "/w/record", Graph("g", ()), ()),
        configuring="auto",
        skills_configuring="ask",
    ),
    kinds.SelectorOpened("owner", SELECTOR, 2, kinds.Offers(("p:m",)), "it says nothing"),
    kinds.RoleConfigured("owner", "p:m", is_automatic=True, selector=SELECTOR, is_partial=True),
    kinds.RunSettings("p:m", "/w/s.yaml", ("make *",), ("example.org",), ("p:n",)),
    kinds.NodeParked("build", "developer_2", "autonomous-abort", "no agent", keeps_reply=True),
    kinds.ImprovementParked("owner", "autonomous-abort", "no agent", keeps_reply=True),
    kinds.FlowImported(
        {"flowId": "f"},
        Graph("g", ()),
        {"owner": OWNER},
        record={"plan.md": "sha256-" + "0" * 64},
        at_node={"owner": "owner-intake"},
    ),
    kinds.FlowRequested(
        (kinds.NeededAgent("owner", {"read_file": "hash"}, ("docs",)),),
        ("/v", "/v/record"),
        ("p:m",),
        "retry",
    ),
    kinds.FlowRequestClosed("config_error", "no"),
)


def test_every_golden_entry_decodes_as_expected() -> None:
    assert tuple(body_of(entry) for entry in ENTRIES) == EXPECTED


def test_every_golden_line_is_encoded_identically() -> None:
    assert [line_of(entry) for entry in ENTRIES] == LINES


def test_golden_log_contains_every_field_of_every_kind() -> None:
    for known in kinds.FLOW_BODIES:
        with case(known):
            bodies = [
                msgspec.json.decode(entry.body) for entry in ENTRIES if entry.kind == known.kind
            ]
            assert {name for body in bodies for name in body} >= set(known.__struct_fields__)


def test_golden_log_gives_the_state_of_an_ended_flow() -> None:
    state = flow_state((entry, body_of(entry)) for entry in ENTRIES)
    assert (state.run.status, state.run.workspace_root) == ("completed", "/v")
    assert state.run.history_handoff == {"owner-intake=>build": ("plan.md",)}
    assert state.head == len(ENTRIES) - 1
