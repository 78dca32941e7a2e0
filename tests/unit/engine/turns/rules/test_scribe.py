"""A step of a turn sees the state that includes the entries it has just written."""

from __future__ import annotations

import msgspec

from perdure.engine.turns.rules.scribe import Scribe, is_user_message, queued_of
from perdure.engine.turns.state import fold
from perdure.session.codec import encode
from perdure.session.ledger import TurnStarted
from perdure.session.messages import assistant, user
from perdure.session.notes import Queued
from tests.fakes.turn_log import TurnLog, empty_state


def test_turn_state_includes_every_written_entry() -> None:
    scribe = Scribe(empty_state(), at=0)
    started = scribe.side(TurnStarted(1, "a"))
    ahead = scribe.ahead()
    scribe.side(TurnStarted(2, "a"), about=0)
    message = scribe.tree(user("hi"))
    assert (started, message) == ("s/0", ahead)
    assert scribe.state == fold(empty_state(), TurnLog().append(scribe.entries))
    assert [new.about for new in scribe.entries] == [None, "s/0", None]


def test_queued_entry_is_added_to_the_branch_byte_for_byte() -> None:
    log = TurnLog()
    body = b'{"role": "user", "parts": [], "of_the_future": 1}'
    scribe = Scribe(empty_state(), at=0)
    scribe.side(Queued("message", msgspec.Raw(body), 3))
    waiting = log.append(scribe.entries)[0]
    adopting = Scribe(scribe.state, at=0)
    adopting.adopt(waiting)
    assert adopting.entries[0].body == body
    assert adopting.entries[0].v == 3
    assert adopting.entries[1].kind == "adopted"
    assert adopting.state.queued == ()


def test_queued_answer_is_not_a_user_message() -> None:
    said = Queued("message", msgspec.Raw(encode(user("hi"))))
    other = Queued("message", msgspec.Raw(encode(assistant("hi"))))
    assert is_user_message(said)
    assert not is_user_message(other)
    assert not is_user_message(Queued("custom", msgspec.Raw(b"{}")))


def test_queued_message_is_read_back_with_its_mode() -> None:
    scribe = Scribe(empty_state(), at=0)
    body = Queued("message", msgspec.Raw(encode(user("hi"))), mode="follow_up")
    scribe.side(body)
    assert queued_of(scribe.state.queued[0]).mode == "follow_up"
