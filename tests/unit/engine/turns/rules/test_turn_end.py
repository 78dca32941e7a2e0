"""The end of turns."""

from __future__ import annotations

from typing import cast

import msgspec

from perdure.engine.turns import inputs
from perdure.engine.turns.rules.scribe import Scribe
from perdure.engine.turns.rules.turn_end import finish, refuse_pending
from perdure.session.codec import encode
from perdure.session.ledger import ToolFinished, TurnEnd, TurnFinished
from perdure.session.messages import assistant, tool_call, user
from perdure.session.notes import Queued, SessionEnded
from tests.fakes.turn_log import CONFIG, Course


def test_end_of_a_turn_adds_queued_entries_to_the_branch() -> None:
    course = Course()
    course.others_append(Queued("message", msgspec.Raw(encode(user("wait")))))
    scribe = Scribe(course.state, 0)
    finish(scribe, "error", failure="internal", error="broken")
    assert [entry.kind for entry in scribe.entries] == ["message", "adopted", "turn_finished"]
    assert scribe.state.queued == ()


def test_pending_calls_of_an_aborted_turn_get_the_outcome_aborted() -> None:
    course = Course()
    course.happens(inputs.Answered(assistant(tool_call("a", "ask"), tool_call("b", "ask"))))
    course.happens(inputs.Aborted())
    finished = course.log.bodies(ToolFinished)
    assert [(body.id, body.outcome) for body in finished] == [("a", "aborted"), ("b", "aborted")]
    scribe = Scribe(course.state, 0)
    refuse_pending(scribe, "refused", "no", "x")
    assert scribe.entries == []


def test_cancelled_turn_is_marked_as_cancelled() -> None:
    course = Course()
    course.happens(inputs.Aborted(is_cancel=True))
    assert course.log.bodies(TurnFinished)[0].end == "cancelled"


def test_session_ends_with_the_reason_that_its_agent_gave() -> None:
    course = Course()
    course.happens(inputs.Answered(assistant(tool_call("a", "ask", {"reason": "all is done"}))))
    course.happens(inputs.ToolReturned("it ends", ends_session=True))
    course.happens(inputs.Answered(assistant()))
    assert course.log.bodies(SessionEnded) == [SessionEnded("agent", "all is done")]
    assert course.log.bodies(TurnFinished)[0].end == "stop"


def test_session_does_not_end_if_its_turn_fails() -> None:
    course = Course()
    course.happens(inputs.Answered(assistant(tool_call("a", "ask", {"reason": "done"}))))
    course.happens(inputs.ToolReturned("it ends", ends_session=True))
    course.happens(inputs.Aborted())
    assert course.log.bodies(SessionEnded) == []


def test_end_of_a_turn_withdraws_its_open_question() -> None:
    for end, reason in (("interrupted", "interrupted"), ("error", "failed")):
        course = Course(msgspec.structs.replace(CONFIG, on_interrupt="ask"))
        course.happens(inputs.Lost(has_begun=True))
        asked = course.state.question
        assert asked is not None
        scribe = Scribe(course.state, 0)
        finish(scribe, cast("TurnEnd", end))
        assert [entry.kind for entry in scribe.entries] == ["question_withdrawn", "turn_finished"]
        assert (scribe.entries[0].about, scribe.state.question) == (asked.id, None)
        assert msgspec.json.decode(scribe.entries[0].body) == {"reason": reason}
