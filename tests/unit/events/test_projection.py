"""Entries as events, and events on the wire."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perdure.events.projection import OTHER, events_of, wire
from perdure.events.types import Event, LiveEvent, Snapshot
from perdure.session import kinds, ledger, notes
from perdure.session.codec import BODIES, encode, entry_of_line
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.messages import MESSAGE, Message, TextPart, Usage, assistant, user
from tests.fakes.samples import case

S = StreamId("s")
AT = 1_700_000_000_000
ABOUT = EntryId("s/3")
GOLDEN = Path(__file__).parents[2] / "golden" / "v1"


def entry_with(body: Message | kinds.TreeBody | notes.SideBody) -> Entry:
    is_message = isinstance(body, Message)
    is_tree = is_message or isinstance(body, kinds.TreeBody)
    return Entry(
        stream=S,
        seq=9,
        lane="tree" if is_tree else "side",
        parent_id=ABOUT if is_tree else None,
        about=None if is_tree else ABOUT,
        at=AT,
        kind=MESSAGE if is_message else body.kind,
        v=1,
        body=encode(body),
    )


def told(body: Message | kinds.TreeBody | notes.SideBody) -> list[tuple[str, dict[str, object]]]:
    """Return the types and payloads of the events of `body`, without the entry's position."""
    events = events_of(entry_with(body))
    place = {"entryId", "parentId", "about"}
    return [
        (event.type, {k: v for k, v in event.payload.items() if k not in place}) for event in events
    ]


def test_message_event_contains_the_parts_of_the_message() -> None:
    assert told(assistant("hi", model="m:1", usage=Usage(3, 4))) == [
        (
            "agent:message",
            {
                "role": "assistant",
                "parts": [{"type": "text", "text": "hi"}],
                "model": "m:1",
                "stopReason": "stop",
                "usage": {
                    "inputTokens": 3,
                    "outputTokens": 4,
                    "cacheReadTokens": 0,
                    "cacheWriteTokens": 0,
                },
            },
        )
    ]


def test_event_contains_the_position_and_id_of_its_entry() -> None:
    (tree,) = events_of(entry_with(user("x")))
    (side,) = events_of(entry_with(notes.SessionReopened()))
    assert (tree.stream, tree.seq, tree.index, tree.at) == (S, 9, 0, AT)
    assert (tree.payload["entryId"], tree.payload["parentId"]) == ("s/9", "s/3")
    assert side.payload == {"entryId": "s/9", "about": "s/3"}


SAYINGS: list[tuple[kinds.TreeBody | notes.SideBody, str, dict[str, object]]] = [
    (
        kinds.Compaction(
            "sum", first_kept=ABOUT, tokens_before=10, read_files=("a",), usage=Usage(5, 1, 2)
        ),
        "session:compacted",
        {
            "summary": "sum",
            "firstKept": "s/3",
            "tokensBefore": 10,
            "reason": "manual",
            "readFiles": ["a"],
            "modifiedFiles": [],
            "tokensUsed": {"input": 7, "output": 1},
        },
    ),
    (
        kinds.BranchSummary("left", from_id=ABOUT),
        "session:branch_summarized",
        {"summary": "left", "fromId": "s/3", "readFiles": [], "modifiedFiles": []},
    ),
    (kinds.ModelChange("p:m"), "session:model_changed", {"model": "p:m"}),
    (kinds.ThinkingChange("high"), "session:thinking_changed", {"level": "high"}),
    (kinds.Custom("x", {"a_b": 1}), "session:custom", {"customType": "x", "data": {"a_b": 1}}),
    (
        kinds.CustomMessage("x", (TextPart("t"),)),
        "session:custom_message",
        {
            "customType": "x",
            "parts": [{"type": "text", "text": "t"}],
            "isDisplayed": True,
            "inContext": True,
        },
    ),
    (notes.LeafMoved(None), "session:branched", {"target": None}),
    (notes.Note("my.x", {"a": 1}), "session:noted", {"noteType": "my.x", "data": {"a": 1}}),
    (notes.Label("start"), "session:labeled", {"text": "start"}),
    (notes.Label(None), "session:labeled", {"text": None}),
    (notes.SessionInfoChanged(title=None), "session:renamed", {"title": None}),
    (notes.SessionInfoChanged(cwd="/w"), "session:moved", {"cwd": "/w"}),
    (
        notes.SessionStarted({"id": "a", "model": "p:m"}, {"working_dir": "."}, "Be kind."),
        "session:started",
        {
            "agentRef": "a",
            "model": "p:m",
            "agent": {"id": "a", "model": "p:m"},
            "context": {"working_dir": "."},
            "systemPrompt": "Be kind.",
        },
    ),
    (
        notes.SessionExported("/x.yaml", "workflow", "relavium"),
        "session:exported",
        {"workflowPath": "/x.yaml", "format": "workflow", "dialect": "relavium"},
    ),
    (notes.NodeEntered("plan", "f1"), "session:node_entered", {"node": "plan", "flow": "f1"}),
    (notes.Pin(is_pinned=False), "session:pinned", {"isPinned": False}),
    (
        notes.ContentErased("e1", "me", ((0, 3),)),
        "session:content_erased",
        {"certificate": "e1", "by": "me", "ranges": [[0, 3]], "isWhole": False},
    ),
    (notes.SessionEnded("idle", "late"), "session:ended", {"by": "idle", "reason": "late"}),
    (
        notes.Question("unknown_outcome", "again?", ("yes", "no"), call_id="c"),
        "inbox:question",
        {
            "topic": "unknown_outcome",
            "text": "again?",
            "choices": ["yes", "no"],
            "callId": "c",
        },
    ),
    (notes.Answer("yes", "me"), "inbox:answer", {"choice": "yes", "by": "me"}),
    (notes.QuestionWithdrawn("aborted"), "inbox:withdrawn", {"reason": "aborted"}),
    (
        notes.Queued("message", msgspec.Raw(b'{"role":"user"}')),
        "session:queued",
        {
            "entryKind": "message",
            "entryBody": {"role": "user"},
            "entryV": 1,
            "mode": "steer",
        },
    ),
    (
        ledger.TurnStarted(3, "helper"),
        "session:turn_started",
        {"turnNumber": 3, "agentRef": "helper", "onInterrupt": "retry"},
    ),
    (
        ledger.ToolStarted("c", "find", {"q": 1}, 0, "read", "retry", "key"),
        "agent:tool_call",
        {
            "callId": "c",
            "toolId": "find",
            "toolInput": {"q": 1},
            "attemptNumber": 1,
            "effect": "read",
            "calledAt": "1970-01-01T00:00:00.000Z",
        },
    ),
    (
        ledger.ToolFinished("c", "find", "error", succeeded=False, error="x" * 600),
        "agent:tool_result",
        {
            "callId": "c",
            "toolId": "find",
            "attemptNumber": 1,
            "success": False,
            "isError": True,
            "outcome": "error",
            "outputSummary": "x" * 500,
        },
    ),
    (
        ledger.TurnFinished("stop", Usage(1, 2)),
        "session:turn_completed",
        {"stopReason": "stop", "tokensUsed": {"input": 1, "output": 2}},
    ),
    (
        ledger.TurnFinished("error", failure="turn_limit", error="50 turns"),
        "session:turn_completed",
        {
            "stopReason": "error",
            "error": {
                "code": "turn_limit",
                "message": "50 turns",
                "retryable": False,
                "correlationId": ABOUT,
            },
        },
    ),
    (ledger.TurnFinished("cancelled"), "session:cancelled", {"stopReason": "cancelled"}),
    (notes.SessionCancelled(), "session:cancelled", {}),
    (notes.GrantRevoked("a"), "session:grant_revoked", {"grant": "a"}),
    (
        ledger.BudgetNoted("p:m", 1, 2),
        "cost:budget_warning",
        {"model": "p:m", "spentMicrocents": 1, "limitMicrocents": 2},
    ),
    (ledger.OutputRefused("too short"), "agent:output_refused", {"problem": "too short"}),
    (
        ledger.Trimmed(0, 5, "max_working_tokens", 800, 3),
        "session:trimmed",
        {
            "reason": "auto-fallback",
            "droppedMessageCount": 0,
            "keptMessageCount": 5,
            "limit": "max_working_tokens",
            "limitTokens": 800,
            "recalledLeftOutCount": 3,
        },
    ),
    (
        ledger.Trimmed(2, 5),
        "session:trimmed",
        {"reason": "auto-fallback", "droppedMessageCount": 2, "keptMessageCount": 5},
    ),
]


def test_each_entry_kind_becomes_the_expected_event() -> None:
    for body, type_, payload in SAYINGS:
        with case((body, type_, payload)):
            assert told(body) == [(type_, payload)]


def test_finished_model_call_with_usage_causes_an_additional_cost_event() -> None:
    usage = Usage(1, 2, cost_microcents=30)
    spent = ledger.Spending(70, 1)
    body = ledger.ModelFinished("stop", usage, model="p:m", spent=spent)
    first, second = events_of(entry_with(body))
    assert (first.type, first.index) == ("agent:model_finished", 0)
    assert (second.type, second.index) == ("cost:updated", 1)
    assert second.payload["model"] == "p:m"
    assert second.payload["costMicrocents"] == 30
    assert second.payload["cumulativeCostMicrocents"] == 70
    assert second.payload["unpricedCalls"] == 1
    assert second.payload["priced"] is True
    assert second.payload["isEstimated"] is False


def test_model_call_without_usage_causes_no_cost_event() -> None:
    assert [event.type for event in events_of(entry_with(ledger.ModelFinished()))] == [
        "agent:model_finished"
    ]


def test_entry_with_a_new_title_and_folder_becomes_two_events() -> None:
    events = events_of(entry_with(notes.SessionInfoChanged(title="t", cwd="/w")))
    assert [(event.type, event.index) for event in events] == [
        ("session:renamed", 0),
        ("session:moved", 1),
    ]


def test_every_entry_of_the_example_logs_has_json_events() -> None:
    logs = [file.read_bytes().removesuffix(b"\n") for file in GOLDEN.glob("*.jsonl")]
    entries = [entry_of_line(line) for log in logs for line in log.split(b"\n")]
    seen = {entry.kind for entry in entries}
    assert seen >= BODIES.keys()
    for entry in entries:
        events = events_of(entry)
        assert events
        for event in events:
            assert msgspec.json.decode(msgspec.json.encode(wire(event))) == wire(event)
            if entry.kind in BODIES:
                assert event.type != OTHER


@pytest.mark.parametrize(
    "entry",
    [
        Entry(S, 0, "tree", None, None, AT, "from_the_future", 3, b'{"x":1}'),
        Entry(S, 0, "side", None, None, AT, "opaque", 1, b"\xff"),
        Entry(S, 0, "tree", None, None, AT, MESSAGE, 99, b"{}"),
        Entry(S, 0, "tree", None, None, AT, MESSAGE, 1, b"[]"),
        Entry(S, 0, "side", None, None, AT, "session_info", 1, b"{}"),
    ],
    ids=["unknown kind", "opaque", "newer version", "damaged", "says nothing"],
)
def test_unreadable_entry_has_an_event(entry: Entry) -> None:
    (event,) = events_of(entry)
    assert event.type == OTHER
    assert event.payload["kind"] == entry.kind
    assert event.payload["lane"] == entry.lane


def test_durable_event_on_the_wire_has_its_sequence_number() -> None:
    (event,) = events_of(entry_with(notes.Label("start")))
    assert wire(event) == {
        "sessionId": "s",
        "type": "session:labeled",
        "timestamp": "2023-11-14T22:13:20.000Z",
        "sequenceNumber": 9,
        "entryId": "s/9",
        "about": "s/3",
        "text": "start",
    }


def test_second_event_of_one_entry_has_an_index() -> None:
    first, second = events_of(entry_with(ledger.ModelFinished("stop", Usage(1))))
    assert "index" not in wire(first)
    assert wire(second)["index"] == 1


def test_event_payload_cannot_override_envelope_fields() -> None:
    event = Event(S, 9, 0, "session:custom", AT, {"sessionId": "forged", "sequenceNumber": 0})
    assert wire(event)["sessionId"] == "s"
    assert wire(event)["sequenceNumber"] == 9


def test_live_event_on_the_wire_has_the_seq_of_its_call() -> None:
    token = LiveEvent(S, 4, 2, "agent:token", AT, "Hi", "helper", "p:m")
    thought = LiveEvent(S, 4, 2, "agent:reasoning", AT, "Hm", "helper", "p:m")
    snapshot = Snapshot(S, 4, 2, assistant("Hi"), AT)
    envelope = {"sessionId": "s", "timestamp": "2023-11-14T22:13:20.000Z", "of": 4, "n": 2}
    whose = {"nodeId": "helper", "model": "p:m"}
    assert wire(token) == {
        **envelope,
        **whose,
        "type": "agent:token",
        "token": "Hi",
        "text": "Hi",
    }
    assert wire(thought) == {**envelope, **whose, "type": "agent:reasoning", "text": "Hm"}
    assert wire(snapshot) == {
        **envelope,
        "type": "agent:snapshot",
        "partial": {
            "role": "assistant",
            "parts": [{"type": "text", "text": "Hi"}],
            "stopReason": "stop",
        },
    }


def test_events_mask_secrets() -> None:
    key = "sk-ant-" + "a1b2c3d4" * 5
    args: dict[str, object] = {
        "headers": {"Authorization": f"Bearer {key}"},
        "password": "hunter22",
    }
    started = ledger.ToolStarted("c", "t", args, 0, "external", "ask", "k")
    finished = ledger.ToolFinished("c", "t", "error", succeeded=False, error=f"bad {key}")
    told = str(
        [event.payload for body in (started, finished) for event in events_of(entry_with(body))]
    )
    assert key not in told
    assert "hunter22" not in told
    assert started.input == args


APPROVALS: list[tuple[str, str | None, dict[str, str]]] = [
    ("fs_write", "a.py", {"path": "a.py"}),
    ("process", "git push", {"command": "git push"}),
    ("egress", "example.org", {"host": "example.org"}),
    ("egress", None, {}),
    ("os", None, {}),
]


@pytest.mark.parametrize(("action", "shown", "preview"), APPROVALS)
def test_approval_event_has_the_action_and_preview_of_the_call(
    action: str, shown: str | None, preview: dict[str, str]
) -> None:
    body = notes.Question(
        "approval",
        "May t run?",
        ("allow", "deny"),
        call_id="c",
        agent="helper",
        tool="t",
        action=action,
        preview=shown,
    )
    (question, _), (requested, payload) = told(body)
    assert (question, requested) == ("inbox:question", "agent:approval_requested")
    named = {"nodeId": "helper", "callId": "c", "toolId": "t", "action": action}
    assert payload == {**named, "preview": preview}


def test_call_event_has_agent_and_model() -> None:
    started = ledger.ToolStarted(
        "c", "find", {}, 0, "read", "retry", "key", attempt=2, agent="helper", model="p:m"
    )
    finished = ledger.ToolFinished(
        "c", "find", "ok", succeeded=True, agent="helper", attempt=2, summary="found " + "x" * 600
    )
    called = ledger.ModelCalled(1, "p:m", attempt=2, agent="helper")
    cost = ledger.ModelFinished("stop", Usage(1), model="p:m", agent="helper", attempt=2)
    for body in (started, finished, called, cost):
        _, payload = told(body)[-1]
        assert (payload["nodeId"], payload["attemptNumber"]) == ("helper", 2)
    assert told(started)[0][1]["model"] == "p:m"
    ((_, result),) = told(finished)
    assert result["outputSummary"] == ("found " + "x" * 600)[:500]
    assert result["isError"] is False


def test_summary_of_a_tool_result_shows_no_part_of_a_secret_at_its_end() -> None:
    key = "sk-ant-api03-" + "Ab1" * 30
    finished = ledger.ToolFinished("t", "find", "ok", succeeded=True, summary="x" * 484 + f" {key}")
    ((_, result),) = told(finished)
    assert "sk-ant" not in str(result["outputSummary"])


@pytest.mark.parametrize(
    ("reason", "told_as"),
    [("manual", "manual"), ("threshold", "auto-threshold"), ("overflow", "auto-overflow")],
)
def test_compaction_has_start_and_end_events(reason: ledger.CompactingReason, told_as: str) -> None:
    called = ledger.ModelCalled(1, "p:m", purpose="summary", reason=reason)
    assert told(called)[-1] == ("session:compacting", {"reason": told_as})
    ((_, done),) = told(kinds.Compaction("sum", reason=reason, kept=3))
    assert (done["reason"], done["keptMessageCount"]) == (told_as, 3)


def test_turn_end_event_contains_the_model() -> None:
    ((_, payload),) = told(ledger.TurnFinished("stop", Usage(1, 2), model="p:m"))
    assert payload["tokensUsed"] == {"input": 1, "output": 2, "model": "p:m"}
