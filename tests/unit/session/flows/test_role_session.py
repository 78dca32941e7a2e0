"""`RoleSession`: a role's session as the JSON of A-Society (transcript, node, archives, usage)."""

from __future__ import annotations

import msgspec

from perdure.session import ledger, notes
from perdure.session.entries import Entry
from perdure.session.flows.role_session import RoleSession, role_session
from perdure.session.ids import StreamId, entry_id
from perdure.session.kinds import Compaction
from perdure.session.messages import (
    ThinkingPart,
    Usage,
    assistant,
    system,
    tool_call,
    tool_result,
    user,
)

ID = StreamId("f__owner")


def session_of(*bodies: object, about: int = 0) -> RoleSession:
    """Return the session after `bodies`; side entries are about entry `about`."""
    log = [
        (Entry(ID, n, "side", None, entry_id(ID, about), 1_700_000_000_000, "x", 1, b"{}"), body)
        for n, body in enumerate(bodies)
    ]
    return role_session("owner", ID, log)


def test_role_session_messages_have_the_a_society_format() -> None:
    found = session_of(
        system("not told"),
        user("Go."),
        assistant(ThinkingPart("hm"), "Look.", tool_call("c1", "read_file", {"path": "a"})),
        tool_result("c1", "no such file", is_error=True, name="read_file"),
        assistant("Done.", usage=Usage(60, 20, cache_read_tokens=5)),
    )
    assert found.transcript_history == (
        {"role": "user", "content": "Go."},
        {
            "role": "assistant_tool_calls",
            "calls": [{"id": "c1", "name": "read_file", "input": {"path": "a"}}],
            "text": "Look.",
            "reasoning": "hm",
        },
        {
            "role": "tool_result",
            "callId": "c1",
            "toolName": "read_file",
            "content": "no such file",
            "isError": True,
        },
        {"role": "assistant", "content": "Done."},
    )
    assert found.latest_context_usage == 85


def test_role_session_json_uses_a_society_field_names() -> None:
    started = notes.SessionStarted(system_prompt="You are the owner.")
    found = session_of(started, user("Go."), notes.NodeEntered("plan"), about=1)
    assert msgspec.json.decode(msgspec.json.encode(found)) == {
        "roleName": "owner",
        "logicalSessionId": ID,
        "transcriptHistory": [{"role": "user", "content": "Go."}],
        "isActive": False,
        "currentNodeContext": {
            "nodeId": "plan",
            "exchanges": [{"role": "user", "content": "Go."}],
        },
        "currentNodeId": "plan",
        "systemPrompt": "You are the owner.",
    }


def test_messages_before_the_current_node_are_excluded() -> None:
    found = session_of(user("old"), assistant("old"), user("new"), notes.NodeEntered("b"), about=2)
    assert found.current_node_context is not None
    assert found.current_node_context.exchanges == ({"role": "user", "content": "new"},)


def test_session_is_active_during_open_turn() -> None:
    started = ledger.TurnStarted(1, "owner")
    assert session_of(started).is_active
    assert not session_of(started, ledger.TurnFinished("stop")).is_active


def test_messages_replaced_by_a_compaction_are_archived() -> None:
    compaction = Compaction("all of it", reason="threshold", tokens_after=0)
    found = session_of(user("Go."), notes.NodeEntered("plan"), assistant("Ok."), compaction)
    replacement = {"role": "user", "content": "all of it"}
    assert found.transcript_history == (replacement,)
    assert found.current_node_context is not None
    assert found.current_node_context.exchanges == (replacement,)
    (archive,) = found.compaction_archives
    assert (archive.trigger, archive.node_id) == ("auto", "plan")
    assert archive.compacted_at == "2023-11-14T22:13:20.000Z"
    assert [said["content"] for said in archive.archived_transcript_history] == ["Go.", "Ok."]
    assert found.latest_context_usage == 0


def test_messages_kept_by_compaction_stay_in_the_transcript() -> None:
    kept = Compaction("before", first_kept=entry_id(ID, 1), reason="manual")
    found = session_of(user("a"), user("b"), kept)
    assert [said["content"] for said in found.transcript_history] == ["before", "b"]
    assert found.compaction_archives[0].trigger == "manual"


def test_imported_session_keeps_state_and_continues() -> None:
    was = session_of(user("old"), user("Go."), notes.NodeEntered("plan"), about=1)
    imported = notes.RoleImported(msgspec.to_builtins(was), ())
    assert session_of(user("old"), user("Go."), imported) == was
    went_on = session_of(user("Go."), imported, assistant("Ok."))
    assert went_on.current_node_context is not None
    assert [said["content"] for said in went_on.current_node_context.exchanges] == ["Go.", "Ok."]
