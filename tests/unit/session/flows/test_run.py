from __future__ import annotations

import msgspec

from perdure.session.flows.kinds import HandoffStaged, HandoffTarget, NodeParked
from tests.fakes.flow_log import FlowLog, graph


def test_flow_run_json_uses_a_society_field_names() -> None:
    log = FlowLog(graph("owner-intake>a", **{"owner-intake": "owner"})).work("owner-intake", "a")
    log.claim("a", "owner-intake=>a").add(NodeParked("a", "a", "prompt-human"))
    told = msgspec.to_builtins(log.run)
    assert set(told) >= {
        *("flowId", "projectNamespace", "workspaceRoot", "recordFolderPath", "stateVersion"),
        *("status", "runningNodes", "awaitingHumanNodes", "pendingHumanInputs", "visitedNodeIds"),
        *("completedHandoffs", "receivingHandoff", "historyHandoff", "awaitingHandoff"),
        *("consentState", "feedbackContext", "recordName"),
    }
    assert told["awaitingHumanNodes"] == {"a": {"role": "a", "reason": "prompt-human"}}
    assert told["consentState"] == {
        "mode": "no-access",
        "bash": {"allowedCommands": {}},
        "mcp": {"allowedTools": {}},
    }


def test_flow_run_lists_nodes_that_await_approval() -> None:
    log = FlowLog(graph("o>a")).claim("o")
    log.add(HandoffStaged("o", "o", (HandoffTarget("a", "x.md"),)))
    told = msgspec.json.decode(msgspec.json.encode(log.run))
    assert told["pendingHandoffApprovals"] == {"o": [{"node": "a", "artifact": "x.md"}]}
