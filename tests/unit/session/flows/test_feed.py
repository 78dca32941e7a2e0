"""The feed of a role: its items, and the same feed for any page size."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.session import ledger, notes
from perdure.session.entries import Entry
from perdure.session.flows import kinds
from perdure.session.flows.feed import FeedItem, FeedPoint, changes, feed_of, merge_logs
from perdure.session.ids import StreamId
from perdure.session.kinds import Compaction
from perdure.session.messages import Message, ThinkingPart, assistant, tool_call, user
from tests.fakes.flow_log import FLOW

OWNER = StreamId(f"{FLOW}__owner")
Said = tuple[Entry, object]

STARTED = ledger.TurnStarted(1, "owner")
CLAIM = kinds.NodeClaimed("plan", "owner", OWNER, "start")
REPLY = kinds.NodeClaimed("plan", "owner", OWNER, "reply", text="Go on.")


def tool(id: str, name: str = "read_file") -> ledger.ToolStarted:
    return ledger.ToolStarted(id, name, {"path": "a"}, 0, "read", "retry", id)


def tool_done(id: str, *, succeeded: bool = True, name: str = "read_file") -> ledger.ToolFinished:
    outcome = "ok" if succeeded else "error"
    error = None if succeeded else "no such file"
    return ledger.ToolFinished(id, name, outcome, succeeded, error=error)


def log_of(*bodies: object, at: int = 1) -> list[Said]:
    """Return `bodies` as entries of the flow's log or of the owner's log, in this order."""
    seqs = {FLOW: 0, OWNER: 0}
    said: list[Said] = []
    for step, body in enumerate(bodies):
        stream = FLOW if isinstance(body, kinds.FLOW_BODIES) else OWNER
        entry = Entry(stream, seqs[stream], "side", None, None, at + step, "x", 1, b"{}")
        seqs[stream] += 1
        said.append((entry, body))
    return said


def told(*bodies: object) -> list[tuple[str, str]]:
    return [(item.type, item.text) for item in feed_of("owner", log_of(*bodies))]


def test_feed_shows_the_start_of_a_node() -> None:
    assert told(CLAIM, STARTED, user("Node `plan` started ...")) == [
        ("activation", "Node plan started")
    ]


def test_feed_shows_the_reply_of_a_person() -> None:
    assert told(CLAIM, REPLY, STARTED, user("Go on."))[1:] == [
        ("activation", "Node plan resumed"),
        ("user", "Go on."),
    ]


def test_feed_shows_message_sent_during_turn() -> None:
    assert told(CLAIM, STARTED, user("entry"), user("And be quick."))[1:] == [
        ("user", "And be quick.")
    ]


def test_consecutive_answers_or_thoughts_are_one_item() -> None:
    thought = assistant(ThinkingPart("hm"), ThinkingPart("so"), "First.")
    feed = feed_of("owner", log_of(thought, assistant("Then.")))
    assert [(item.type, item.text) for item in feed] == [
        ("reasoning", "hm\n\nso"),
        ("assistant", "First.\n\nThen."),
    ]
    assert [item.id for item in feed] == ["owner_1", "owner_2"]


def test_tool_call_is_pending_until_its_outcome() -> None:
    calls = (assistant("Look.", tool_call("c1", "read_file")), tool("c1"), tool("c2"))
    assert [type for type, _ in told(*calls)] == ["assistant", "tool", "tool"]
    done = told(*calls, tool_done("c2", succeeded=False), tool_done("c1"))
    assert done[1:] == [
        ("tool-success", 'read_file {"path":"a"}'),
        ("tool-error", 'read_file {"path":"a"}\nno such file'),
    ]


def test_call_that_never_ran_is_shown_as_failed() -> None:
    assert told(tool_done("c1", succeeded=False)) == [("tool-error", "read_file\nno such file")]


def test_compaction_without_a_model_call_is_not_in_the_feed() -> None:
    begun = ledger.ModelCalled(1, "p:m", purpose="summary")
    assert [type for type, _ in told(begun)] == ["tool"]
    assert [type for type, _ in told(begun, Compaction("all of it"))] == ["tool-success"]
    assert told(Compaction("all of it")) == []
    failed = ledger.ModelFinished(error="the model is gone")
    assert told(begun, failed) == [("tool-error", "Compacting the conversation\nthe model is gone")]


def test_interrupted_answer_is_shown_and_continued() -> None:
    assert told(ledger.Interrupted(assistant("Half an"))) == [
        ("assistant", "Half an"),
        ("resume", "The answer was cut off and is taken up"),
    ]


def test_feed_shows_handoffs_and_errors() -> None:
    target = (kinds.HandoffTarget("build", "plan.md"),)
    feed = told(
        CLAIM,
        kinds.RepairAsked("plan", "owner", "missing_block", "no block", "Write one.", 1),
        kinds.HandoffStaged("plan", "owner", target),
        kinds.HandoffDeclined("plan", "owner", "ann", "too early"),
        kinds.HandoffMade("plan", target, approved_by="ann"),
        kinds.HandoffAwaited("plan"),
        kinds.NodeParked("plan", "owner", "autonomous-abort", "the model is gone"),
        kinds.NodeParked("plan", "owner", "prompt-human"),
        kinds.RoleConfigured("owner", "p:m"),
        kinds.FindingsMade("owner", "findings/owner-findings.md"),
    )
    assert feed[1:] == [
        ("repair", "no block (missing_block, 1)"),
        ("event", "plan wants to hand plan.md to build"),
        ("event", "ann declined the handoff: too early"),
        ("handoff", "plan handed plan.md to build, approved by ann"),
        ("event", "plan waits for a handoff"),
        ("error", "the model is gone"),
        ("event", "model p:m"),
        ("handoff", "wrote findings/owner-findings.md"),
    ]


def test_feed_omits_work_of_other_roles() -> None:
    other = kinds.NodeClaimed("build", "developer", OWNER, "handoff")
    target = (kinds.HandoffTarget("review", "code.md"),)
    assert told(other, kinds.HandoffMade("build", target)) == []


def test_new_feed_items_follow_imported_items() -> None:
    item: dict[str, object] = {"id": "owner_7", "type": "assistant", "label": "owner", "text": "Hi"}
    feed = feed_of("owner", log_of(notes.RoleImported({}, (item,)), assistant("Again.")))
    assert [(each.id, each.text) for each in feed] == [("owner_7", "Hi"), ("owner_8", "Again.")]


def test_entries_of_one_commit_are_in_causal_order() -> None:
    ended = kinds.HandoffMade("plan", (kinds.HandoffTarget("build", "plan.md"),))
    again = kinds.NodeClaimed("plan", "owner", OWNER, "handoff")
    turn = [STARTED, user("x"), assistant("y"), ledger.TurnFinished("stop")]
    flow = [(entry, body) for entry, body in _at_once(CLAIM, ended, again)]
    session = [(entry, body) for entry, body in _at_once(*turn, *turn)]
    order = [type(body).__name__ for _, body in merge_logs(flow, session)]
    turns = ["TurnStarted", "Message", "Message", "TurnFinished"]
    assert order == ["NodeClaimed", *turns, "HandoffMade", "NodeClaimed", *turns]


def _at_once(*bodies: object) -> list[Said]:
    return [(msgspec.structs.replace(entry, at=5), body) for entry, body in log_of(*bodies)]


STEPS: tuple[object, ...] = (
    CLAIM,
    REPLY,
    STARTED,
    user("hello"),
    assistant("Said."),
    assistant(ThinkingPart("hm"), "Well."),
    tool("c1"),
    tool("c2"),
    tool_done("c1"),
    tool_done("c2", succeeded=False),
    ledger.ModelCalled(1, "p:m", purpose="summary"),
    Compaction("all of it"),
    ledger.ModelFinished(error="gone"),
    ledger.Interrupted(assistant("Half")),
    kinds.HandoffMade("plan", (kinds.HandoffTarget("build", "plan.md"),)),
    kinds.RepairAsked("plan", "owner", "missing_block", "no block", "Write one.", 1),
)


@pytest.mark.full_only
@given(st.lists(st.sampled_from(STEPS), max_size=30), st.data())
def test_feed_read_in_pages_equals_the_whole_feed(
    bodies: list[object], data: st.DataObject
) -> None:
    log = log_of(*bodies)
    cuts = data.draw(st.lists(st.integers(0, len(log)), max_size=6).map(sorted))
    point, seen = FeedPoint("owner"), dict[str, FeedItem]()
    for start, end in zip([0, *cuts], [*cuts, len(log)], strict=True):
        point = msgspec.json.decode(msgspec.json.encode(point), type=FeedPoint)  # it is kept
        point, items = changes(point, log[start:end])
        seen.update((item.id, item) for item in items)
    assert tuple(seen.values()) == feed_of("owner", log)
    assert [item.id for item in seen.values()] == [f"owner_{n + 1}" for n in range(len(seen))]


def test_feed_omits_system_messages() -> None:
    assert told(Message("system", ())) == []
