"""The log that version 1 wrote: every later version decodes it identically.

A line of ``tests/golden`` is never changed. A new field, kind or version is a new line at the end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from perdure.session.codec import BODIES, Body, Unknown, body_of, entry_of_line, line_of
from perdure.session.flows.kinds import FLOW_BODIES
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import (
    OPAQUE,
    BranchSummary,
    Compaction,
    Custom,
    CustomMessage,
    ModelChange,
    ThinkingChange,
)
from perdure.session.ledger import (
    BudgetNoted,
    Delegated,
    Interrupted,
    LateOutcome,
    ModelCalled,
    ModelFinished,
    OutputRefused,
    Spending,
    ToolFinished,
    ToolStarted,
    Trimmed,
    TurnFinished,
    TurnRefused,
    TurnRequested,
    TurnStarted,
    TurnStopRequested,
)
from perdure.session.memory.kinds import (
    ContextRecalled,
    EpisodeRecorded,
    FactCorrected,
    FactForgotten,
    FactRemembered,
    FactsCaptured,
    FactsDue,
    FactSourcesErased,
    FactsReceived,
    RecalledText,
)
from perdure.session.messages import (
    MESSAGE,
    MediaPart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
    Usage,
    user,
)
from perdure.session.notes import (
    Adopted,
    AgentBound,
    Answer,
    CompactionUndone,
    ContentErased,
    GrantRevoked,
    ImportedRecord,
    ImportSource,
    Invocation,
    Label,
    LeafMoved,
    NodeEntered,
    Note,
    Pin,
    Question,
    QuestionWithdrawn,
    Queued,
    RoleImported,
    SessionCancelled,
    SessionEnded,
    SessionExported,
    SessionInfoChanged,
    SessionReceived,
    SessionReopened,
    SessionStarted,
    WorkspaceChanged,
)
from tests.fakes.samples import case

FLOW_KINDS = {body.kind for body in FLOW_BODIES}

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
LINES = (GOLDEN / "v1" / "entries.jsonl").read_bytes().removesuffix(b"\n").split(b"\n")
ENTRIES = [entry_of_line(line) for line in LINES]

HELD = "media://sha256-" + "1" * 64
PICTURE = MediaPart("image/png", "media://sha256-" + "0" * 64, 10, "a.png")
USAGE = Usage(100, 20, 3, 4, 5600)
FIRST = EntryId("golden/0")
READ, WRITTEN = ("a.py",), ("b.py",)
SNAPSHOT: dict[str, object] = {"name": "helper"}

EXPECTED: tuple[Body, ...] = (
    Message("user", (TextPart("Hello \U0001f600\u2028\u0085"), PICTURE)),
    Message(
        "assistant",
        (
            ThinkingPart("Hm", is_redacted=True),
            TextPart("Look:"),
            ToolCallPart("c1", "read_file", {"path": "x", "n": 2**70}),
            UnknownPart(msgspec.Raw(b'{"type":"hologram","depth":1.50}')),
        ),
        model="scripted:one",
        stop_reason="tool_calls",
        usage=USAGE,
        error="none",
    ),
    Message("tool", (ToolResultPart("c1", "seen", is_error=True, name="look", media=(PICTURE,)),)),
    Compaction(
        "So far",
        first_kept=FIRST,
        tokens_before=1000,
        tokens_after=100,
        reason="threshold",
        read_files=READ,
        modified_files=WRITTEN,
        usage=USAGE,
        retained=(user("Keep this"),),
    ),
    BranchSummary("Tried", from_id=FIRST, read_files=READ, modified_files=WRITTEN, usage=USAGE),
    ModelChange("scripted:two"),
    ThinkingChange("high"),
    Custom("todo", {"done": [1, None, "ü"]}),
    CustomMessage("note", (TextPart("Psst"),), is_displayed=False, in_context=False, details=[1]),
    LeafMoved(FIRST),
    LeafMoved(None),
    Label("start"),
    Label(None),
    SessionInfoChanged(title="Trip", cwd="project"),
    SessionInfoChanged(title=None),
    SessionStarted(agent=SNAPSHOT, workspace=SNAPSHOT, system_prompt="Be brief."),
    AgentBound(SNAPSHOT, workspace=SNAPSHOT, system_prompt="Be brief."),
    SessionEnded(by="agent", reason="done"),
    SessionReopened(),
    CompactionUndone(),
    Queued(MESSAGE, msgspec.Raw(b'{"role":"user","parts":[]}'), entry_v=2, mode="follow_up"),
    Adopted(EntryId("golden/20")),
    ImportSource("pi", "a.jsonl", "sha256-" + "1" * 64, 10, 20, 3, 4, (5, 6), file_session="f1"),
    ImportedRecord("claude-code", "progress"),
    Question(
        "unknown_outcome", "Did it?", ("yes", "no"), call_id="c1", args_hash="ab", expires_at=9
    ),
    Answer("yes", "me", note="saw it"),
    TurnStarted(2, "helper", base=FIRST, on_interrupt="ask", context_tokens=50),
    ModelCalled(1, "scripted:one", attempt=2, purpose="summary", tokens_estimated=60),
    ModelFinished("stop", usage=USAGE, answer=FIRST, error="cut", error_code="x", wait_s=0.5),
    ToolStarted("c1", "send", {"to": "you"}, 1_700_000_000_000, "write", "never", "key", attempt=3),
    ToolFinished(
        "c1",
        "send",
        "unknown",
        succeeded=False,
        result=FIRST,
        error="killed",
        error_code="x",
        duration_ms=7,
        ends_session=True,
    ),
    TurnFinished("error", usage=USAGE, failure="internal", error="broken"),
    Interrupted(Message("assistant", (TextPart("Half an ans"),))),
    LateOutcome(3, msgspec.Raw(b'{"text":"too late"}')),
    Trimmed(5, 10),
    Unknown(OPAQUE, 1, b'{"lone":"\\ud800"}'),
    Unknown("hologram", 9, b'{"a": 1.50}'),
    SessionExported("trip.workflow.yaml", "workflow", "perdure"),
    Pin(is_pinned=False),
    Pin(),
    ContentErased("e1", "me", ((0, 3), (5, 5)), is_whole=True),
    SessionCancelled(),
    GrantRevoked("run_command git status"),
    Question("budget", "Spend more?", ("continue", "stop"), grant="p:m", limit_microcents=300),
    TurnStarted(
        3,
        "helper",
        spent=Spending(5600, 1),
        granted_microcents=300,
        parked={"p": 1_700_000_030_000},
        grants=("a b",),
    ),
    ModelCalled(1, "p:m", link=1),
    ModelFinished(
        error="slow down",
        error_code="rate_limited",
        wait_s=0.0,
        model="p:m",
        is_estimated=True,
        spent=Spending(),
        next_link=2,
        parked_until=1_700_000_030_000,
        is_renewed=True,
    ),
    BudgetNoted("p:m", 1, 2, 3),
    TurnFinished("cancelled"),
    ToolFinished("c1", "t", "ok", succeeded=True, whole="media://sha256-" + "1" * 64),
    NodeEntered("plan", "f1"),
    RoleImported({"roleName": "owner"}, ({"id": "owner_1"},)),
    Compaction("So far", kept=4),
    Question(
        "approval",
        "May it?",
        ("allow", "deny"),
        agent="helper",
        tool="t",
        action="egress",
        preview="example.org",
    ),
    ToolFinished(
        "c1",
        "invoke_agent",
        "ok",
        succeeded=True,
        delegated=Delegated(StreamId("child"), Spending(70)),
    ),
    SessionStarted(invoked_by=Invocation("golden", "c1", "golden/4:0")),
    ModelCalled(1, "p:m", purpose="summary", agent="helper", reason="threshold"),
    ModelFinished(model="p:m", agent="helper", attempt=2),
    ToolStarted("c1", "t", {}, 1, "read", "retry", "k", agent="helper", model="p:m"),
    ToolFinished("c1", "t", "ok", succeeded=True, agent="helper", attempt=2, summary="seen"),
    TurnFinished("stop", model="p:m"),
    Question("approval", "May it?", ("allow", "allow-flow", "deny"), free_in=("full-access",)),
    ImportSource("pi", "a.jsonl", "sha256-" + "1" * 64, 10, 20, 3, 4, has_more=True),
    QuestionWithdrawn("aborted"),
    Question(
        "approval",
        "May it?",
        ("allow", "deny"),
        "c1",
        "ab",
        arguments={"path": "a.txt"},
        bound={"file": "/w/a.txt"},
        diff="@@ -1,1 +1,1 @@\n-a\n+b",
    ),
    ToolStarted("c1", "t", {}, 1, "read", "retry", "k", approved="ab"),
    AgentBound(SNAPSHOT, granted_by="me"),
    SessionReceived(),
    TurnStarted(4, "helper", ran=2),
    ToolFinished(
        "c1",
        "t",
        "refused",
        succeeded=False,
        error="no",
        duration_ms=0,
        input={"q": 1},
        called_at=1_700_000_000_068,
    ),
    WorkspaceChanged(SNAPSHOT, system_prompt="Be there."),
    Message("assistant", (ToolCallPart("c1", "t", {"u": f"data:;base64,{HELD}"}, (HELD,)),)),
    Message("tool", (ToolResultPart("c1", f"data:;base64,{HELD}", contents=(HELD,)),)),
    Compaction("At node b. So far", own_summary="So far"),
    ToolStarted("c1", "t", {}, 1, "read", "retry", "k", contents=(HELD,)),
    Note("my.rating", {"stars": 5}),
    Message("user", (), author="Ana", said_at=1, foreign={"format": "openai"}),
    Note("my.run"),
    EpisodeRecorded(0, 1, 2, "idle", "Trip", "helper", 3, 1, 2, "Said hello."),
    FactRemembered("Ana likes tea", "helper", (FIRST,), "tool", 1, 2),
    FactCorrected("Ana likes coffee", "helper", (FIRST,), "inferred", 1, 2),
    FactForgotten(),
    FactSourcesErased((FIRST,)),
    ContextRecalled(
        "0123456789abcdef", (RecalledText(StreamId("s"), FIRST, 1, 9, 2.5),), (FIRST,), "x"
    ),
    FactsDue("helper"),
    FactsCaptured((FIRST,), "x", "p:m", Usage(3, 2)),
    FactsReceived(2),
    ContextRecalled(
        "0123456789abcdef",
        (RecalledText(StreamId("s"), FIRST, why=("words", "date")),),
    ),
    Trimmed(0, 2, "max_working_tokens", 800, 3),
    OutputRefused("nights: expected `int`, got `str`"),
    TurnRequested(Message("user", (TextPart("Later, please."),)), 1_700_000_100_000),
    TurnRefused("config", "there is no agent"),
    TurnStopRequested(is_cancel=True),
    TurnRequested(Message("user", (TextPart("At once, please."),)), priority="high"),
)


def test_golden_entry_decodes_as_expected() -> None:
    for entry, expected in [*zip(ENTRIES, EXPECTED, strict=True)]:
        with case((entry, expected)):
            assert body_of(entry) == expected
            assert type(body_of(entry)) is type(expected)


def test_golden_line_is_encoded_identically() -> None:
    assert [line_of(entry) for entry in ENTRIES] == LINES


def test_golden_header_decodes_as_expected() -> None:
    for seq, entry in enumerate(ENTRIES):
        assert (entry.stream, entry.seq, entry.at) == ("golden", seq, 1_700_000_000_000 + seq)
    first, second, *_, last, _ = ENTRIES
    assert (first.lane, first.parent_id) == ("tree", None)
    assert (second.lane, second.parent_id) == ("tree", first.id)
    assert (last.lane, last.about) == ("side", "golden/90")


def test_golden_first_message_keeps_unicode_line_separators() -> None:
    assert "\u2028\u0085".encode() in LINES[0]


def test_golden_log_contains_every_kind_version_and_field() -> None:
    for kind in [MESSAGE, *(k for k in BODIES if k not in FLOW_KINDS)]:
        with case(kind):
            known: Any = BODIES.get(kind, Message)
            version = getattr(known, "version", 1)
            lines = [entry for entry in ENTRIES if entry.kind == kind]
            assert {entry.v for entry in lines} == set(range(1, version + 1))
            written = {name for entry in lines for name in msgspec.json.decode(entry.body)}
            assert written >= set(known.__struct_fields__)
