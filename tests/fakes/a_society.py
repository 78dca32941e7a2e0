"""The documents of a small flow folder as A-Society writes them, for tests to change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RUN: dict[str, object] = {
    "flowId": "20260527T143000123Z-a1b2c3",
    "projectNamespace": "trip",
    "workspaceRoot": "/w",
    "recordFolderPath": "/w/record",
    "stateVersion": "11",
    "status": "running",
    "runningNodes": [],
    "awaitingHumanNodes": {},
    "pendingHumanInputs": {},
}
SESSION: dict[str, object] = {
    "roleName": "owner",
    "logicalSessionId": "20260527T143000123Z-a1b2c3__owner",
    "transcriptHistory": [{"role": "user", "content": "Go."}],
    "isActive": False,
}

TRIP = "20260527T143000123Z-a1b2c3"
TRIP_RECORD = "trip/a-docs/records/20260527-trip"
TRIP_WORKFLOW = """\
workflow:
  name: Trip
  nodes:
    - {id: owner-intake, role: owner, work: [Plan the trip.]}
    - {id: curate, role: curator_2, work: [Curate the plan.]}
    - {id: close, role: owner, work: [Close the work.]}
  edges:
    - {from: owner-intake, to: curate}
    - {from: curate, to: close}
"""


def trip_workspace(root: Path) -> Path:
    """Write an A-Society workspace from another place to `root`; return its flow folder.

    The flow's curator has asked a person, whose reply is queued. Paths in the workspace are
    relative to the repository.
    """
    state = root / ".a-society" / "state" / "trip" / TRIP
    record = root / TRIP_RECORD
    record.mkdir(parents=True)
    (record / "workflow.yaml").write_text(TRIP_WORKFLOW)
    (record / "record.yaml").write_text("record:\n  name: Trip\n  summary: null\n")
    (record / "01-plan.md").write_text("By train.\n")
    plan = f"{TRIP_RECORD}/01-plan.md"
    run: dict[str, Any] = {
        **RUN,
        "workspaceRoot": "/home/ana/trips",
        "recordFolderPath": f"/home/ana/trips/{TRIP_RECORD}",
        "awaitingHumanNodes": {"curate": {"role": "curator_2", "reason": "prompt-human"}},
        "pendingHumanInputs": {
            "curate": {"text": "The night train.", "receivedAt": "2026-05-27T14:31:00.000Z"}
        },
        "visitedNodeIds": ["owner-intake", "curate"],
        "completedHandoffs": ["owner-intake=>curate"],
        "receivingHandoff": {},
        "historyHandoff": {"owner-intake=>curate": [plan]},
        "awaitingHandoff": [],
        "consentState": {"mode": "full-access", "bash": {"allowedCommands": {}}},
        "feedbackContext": {"kind": "standard"},
    }
    block = f"```handoff\ntarget_node_id: curate\nartifact_path: {plan}\n```"
    read: list[dict[str, Any]] = [
        {"role": "user", "content": "Node curate started. Curate the plan."},
        {
            "role": "assistant_tool_calls",
            "calls": [{"id": "c1", "name": "read_file", "input": {"path": plan}}],
            "text": "I read it.",
        },
        {
            "role": "tool_result",
            "callId": "c1",
            "toolName": "read_file",
            "content": "By train.",
            "isError": False,
        },
        {"role": "assistant", "content": "Which?\n```handoff\ntype: prompt-human\n```"},
    ]
    _written(state / "flow.json", run)
    _role(
        state,
        "owner",
        "owner-intake",
        [
            {"role": "user", "content": "Node owner-intake started. Plan the trip."},
            {"role": "assistant", "content": f"It is planned.\n{block}"},
        ],
    )
    _role(state, "curator_2", "curate", read)
    return state


def _role(state: Path, role: str, node: str, history: list[dict[str, Any]]) -> None:
    session = {
        **SESSION,
        "roleName": role,
        "logicalSessionId": f"{TRIP}__{role}",
        "transcriptHistory": history,
        "currentNodeContext": {"nodeId": node, "exchanges": history},
        "currentNodeId": node,
        "systemPrompt": f"You are {role}.",
        "latestContextUsage": 900,
        "compactionArchives": [],
    }
    feed = [{"id": f"{role}_1", "type": "activation", "label": role, "text": f"Node {node}"}]
    _written(state / "roles" / role / "transcript.json", session)
    _written(state / "roles" / role / "feed.json", feed)


def _written(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2))
