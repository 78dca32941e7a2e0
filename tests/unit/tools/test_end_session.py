"""The tool with which an agent ends its session."""

from __future__ import annotations

from perdure.session.notes import SessionEnded
from perdure.tools.builtin.catalogue import end_session
from tests.fakes.players import Theatre, asks, words


async def test_session_ends_after_its_turn_with_the_given_reason() -> None:
    json = '{"reason": "the tests pass"}'
    theatre = Theatre(main=[asks("end_session", json=json), words("Goodbye.")])
    chat = await theatre.chat(tools=[end_session])
    assert (await chat.send("we are done")).text == "Goodbye."
    assert await theatre.bodies(SessionEnded) == [SessionEnded("agent", "the tests pass")]
    assert (await theatre.types())[-3:] == [
        "session:turn_completed",
        "session:ended",
        "session:episode_recorded",
    ]
    await chat.send("one more thing")
    assert (await chat.session.info()).status == "active"


async def test_session_ends_even_if_model_adds_no_text() -> None:
    theatre = Theatre(main=[asks("end_session", json='{"reason": "done"}'), words("")])
    chat = await theatre.chat(tools=[end_session])
    assert (await chat.send("we are done")).end == "stop"
    assert (await chat.session.info()).status == "ended"
