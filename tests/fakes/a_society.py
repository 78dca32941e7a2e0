"""The documents of a small flow folder as A-Society writes them, for tests to change."""

from __future__ import annotations

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
