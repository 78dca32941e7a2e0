"""A-Society folders: supported forms, rejected files, and defaults for missing fields."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from perdure.errors import FormatError
from perdure.interop.a_society.folder import (
    flow_folders,
    flow_id_in,
    messages_of,
    read_folder,
)
from perdure.session.messages import assistant, tool_call, tool_result, user
from tests.fakes.a_society import RUN, SESSION


def put(folder: Path, run: Mapping[str, object] = RUN, **files: object) -> Path:
    role = folder / "roles" / "owner"
    role.mkdir(parents=True)
    (folder / "flow.json").write_bytes(msgspec.json.encode(run))
    nothing: list[object] = []
    contents: dict[str, object] = {"transcript": SESSION, "feed": nothing, **files}
    for name, content in contents.items():
        (role / f"{name}.json").write_bytes(msgspec.json.encode(content))
    return folder


def test_missing_fields_of_a_flow_get_defaults(tmp_path: Path) -> None:
    found = read_folder(put(tmp_path))
    assert found.run["visitedNodeIds"] == []
    assert found.run["feedbackContext"] == {"kind": "standard"}
    assert found.run["consentState"]["mode"] == "no-access"
    assert [role.role for role in found.roles] == ["owner"]


def test_imported_consent_request_becomes_a_denied_consent(tmp_path: Path) -> None:
    waiting = {
        "plan": {"role": "owner", "reason": "consent"},
        "build": {"role": "developer", "reason": "prompt-human"},
    }
    phase = {"status": "running", "awaitingHumanRoles": {"owner": waiting["plan"]}}
    run = {**RUN, "awaitingHumanNodes": waiting, "improvementPhase": phase}
    found = read_folder(put(tmp_path, run)).run
    reasons = {node: each["reason"] for node, each in found["awaitingHumanNodes"].items()}
    assert reasons == {"plan": "consent-denied", "build": "prompt-human"}
    of_role = found["improvementPhase"]["awaitingHumanRoles"]["owner"]
    assert of_role == {"role": "owner", "reason": "consent-denied"}


def test_malformed_consent_grants_no_permission(tmp_path: Path) -> None:
    good = {"command": "make test", "grantedAt": "2026-05-27T14:30:00.000Z"}
    commands = {"make test": good, "rm -r /": {"command": "ls"}, "ls": 1}
    consent = {"mode": "everything", "bash": {"allowedCommands": commands}, "mcp": 3}
    found = read_folder(put(tmp_path, {**RUN, "consentState": consent}))
    assert found.run["consentState"] == {
        "mode": "no-access",
        "bash": {"allowedCommands": {"make test": good}},
        "mcp": {"allowedTools": {}},
    }


@pytest.mark.parametrize("version", ["5", "12", None])
def test_flow_of_another_format_version_is_rejected_but_listed(
    tmp_path: Path, version: str | None
) -> None:
    folder = put(tmp_path / "trip" / "f1", {**RUN, "stateVersion": version})
    with pytest.raises(FormatError, match="only '11' can be opened"):
        read_folder(folder)
    assert flow_folders(tmp_path) == (folder,)
    assert flow_id_in(folder) == RUN["flowId"]


@pytest.mark.parametrize("name", ["runningNodes", "awaitingHumanNodes", "workspaceRoot"])
def test_import_of_an_incomplete_flow_is_rejected(tmp_path: Path, name: str) -> None:
    folder = put(tmp_path, {key: value for key, value in RUN.items() if key != name})
    with pytest.raises(FormatError, match=f"it lacks {name}"):
        read_folder(folder)


def test_partly_written_and_malformed_files_are_rejected(tmp_path: Path) -> None:
    torn = put(tmp_path / "torn")
    (torn / "flow.json").write_text('{"flowId": "x"')
    with pytest.raises(FormatError, match="not JSON"):
        read_folder(torn)
    assert flow_id_in(torn) == "torn"
    with pytest.raises(FormatError, match="not what it should be"):
        read_folder(put(tmp_path / "feed", feed=[{"id": 1}]))
    with pytest.raises(FormatError, match="not a JSON object"):
        read_folder(put(tmp_path / "list", transcript=[]))
    other = {**SESSION, "roleName": "developer"}
    with pytest.raises(FormatError, match="of the role 'developer'"):
        read_folder(put(tmp_path / "other", transcript=other))


def test_messages_of_every_form_are_read() -> None:
    call = {"id": "c1", "name": "read_file", "input": {"path": "a"}}
    older = {"id": "c2", "name": "read_file", "arguments": '{"path":"b"}'}
    history = [
        {"role": "user", "content": "Go."},
        {"role": "assistant_tool_calls", "calls": [call, older], "text": "Look."},
        {"role": "tool_result", "callId": "c1", "toolName": "x", "content": "A", "isError": True},
        {"role": "assistant", "content": "Done."},
    ]
    calls = (
        tool_call("c1", "read_file", {"path": "a"}),
        tool_call("c2", "read_file", {"path": "b"}),
    )
    assert list(messages_of(history)) == [
        user("Go."),
        assistant("Look.", *calls),
        tool_result("c1", "A", is_error=True, name="x"),
        assistant("Done."),
    ]


@pytest.mark.parametrize("said", [{"role": "oracle"}, {"role": "user"}, {}])
def test_unknown_message_error_contains_the_message_number(said: dict[str, str]) -> None:
    with pytest.raises(FormatError, match="message 1 has no form"):
        list(messages_of([said], "transcript.json"))
