"""A support desk, built from the guides: two providers over HTTP, and people answer elsewhere."""

from __future__ import annotations

import pytest

import perdure
from tests.acceptance.services.conftest import Desk, until
from tests.fakes.anthropic_server import events as anthropic_events
from tests.fakes.model_server import failing, streaming
from tests.fakes.openai_server import ServerAnswer, answering
from tests.fakes.plans import Plan

FIND = ServerAnswer(calls=(("c1", "find_order", '{"number": 7}'),))
REFUND = ServerAnswer(calls=(("c2", "refund", '{"number": 7}'),))
NOTE = ServerAnswer(calls=(("c3", "write_file", '{"path": "note.md", "content": "call Ana"}'),))


@pytest.mark.all_only
async def test_support_desk_service_survives_an_outage_and_a_kill(
    desk: Desk,
) -> None:
    # The first provider finds the order and then fails: the second one answers the same turn.
    desk.openai.will(answering(FIND), failing(503))
    desk.anthropic.will(streaming(anthropic_events(Plan(text="It was sent."))))
    await desk.say("ana-1", "Where is my order 7?")
    answered = await desk.answer("ana-1", "It was sent.")
    assert answered["model"] == "anthropic:claude-haiku-4-5"
    assert "Kettle & Co" in str(desk.anthropic.requests[-1].body)

    # The process dies while the money goes back: nobody knows, so a person is asked, elsewhere.
    (desk.folder / "bank-is-slow").touch()
    desk.openai.will(answering(REFUND), answering(ServerAnswer(text="Refunded.")))
    await desk.say("ben-1", "I want my money back.")
    refunds = desk.folder / "refunds.txt"
    await until(lambda: refunds.exists() and refunds.read_text(encoding="utf-8").endswith("\n"))
    await desk.kill()
    (desk.folder / "bank-is-slow").unlink()
    await desk.open()
    asked = await desk.question()
    assert (asked["session"], asked["tool"]) == ("ben-1", "refund")
    await desk.perdure("inbox", "answer", asked["id"], "done", "--note", "the bank has it")
    await desk.answer("ben-1", "Refunded.")
    assert "the bank has it" in str(desk.openai.requests[-1].body)
    (refunded,) = refunds.read_text(encoding="utf-8").splitlines()
    assert refunded.startswith("7 ")

    # A tool needs approval: a third process gives it, while the service waits.
    desk.openai.will(answering(NOTE), answering(ServerAnswer(text="Noted.")))
    await desk.say("ana-1", "Please call me.")
    asked = await desk.question()
    assert (asked["session"], asked["topic"]) == ("ana-1", "approval")
    assert not (desk.folder / "note.md").exists()
    await desk.perdure("inbox", "answer", asked["id"], "allow")
    await desk.answer("ana-1", "Noted.")
    assert (desk.folder / "note.md").read_text(encoding="utf-8") == "call Ana"

    assert "Traceback" not in await desk.close()
    assert desk.openai.refused == desk.anthropic.refused == []
    assert (await desk.perdure("store", "verify"))["ok"]
    async with perdure.open(desk.address) as store:
        assert {info.id for info in await store.recent()} == {"ana-1", "ben-1"}
        roles = [message.role for message in await (await store.open("ana-1")).messages()]
        assert roles == ["user", "assistant", "tool", "assistant"] * 2
