"""The received part of a cut answer is stored beside the branch.

The received part is in the context only if an `InterruptPolicy` adds it.
"""

from __future__ import annotations

import pytest

from perdure.client.agents.chat import Chat
from perdure.engine.turns.executor.partial_answers import EVERY_S
from perdure.errors import ModelUnavailable, TurnFailed
from perdure.models.protocol import TextDelta, ThinkingDelta, ToolCallDelta
from perdure.session.ids import StreamId
from perdure.session.ledger import Interrupted, InterruptPolicy, ModelCalled
from perdure.session.messages import TextPart
from tests.fakes.chats import until
from tests.fakes.players import Hold, Theatre, words

BEGUN = (ThinkingDelta("hm"), TextDelta("so f"))


async def kept(theatre: Theatre) -> bool:
    """Advance the clock by one storage interval; return whether a part of the answer is stored."""
    theatre.clock.advance(EVERY_S)
    return await theatre.memory.partial(StreamId("s")) is not None


async def cut(by: str, policy: InterruptPolicy) -> tuple[Theatre, Chat]:
    """A session whose only answer was cut after its first words; `by` names the cause."""
    hold = Hold()
    ends = (ModelUnavailable("p:main", "broke"),) if by == "provider" else (hold,)
    theatre = Theatre(main=[(*BEGUN, *ends), words("yes")])
    chat = await theatre.chat(on_interrupt=policy)
    turn = chat.send("go")
    if by == "provider":
        with pytest.raises(TurnFailed, match="broke"):
            await turn
        return theatre, chat
    await hold.entered.wait()
    if by == "abort":
        await chat.abort()
        reply = await turn
        assert (reply.end, reply.text) == ("aborted", "so f")
        assert (reply.entry_id is None) == (policy != "continue")
    elif by == "cancel":
        await chat.cancel()
        chat = await theatre.runtime().resume("s")
    else:
        await until(lambda: kept(theatre))
        await chat.suspend()
        assert await (await theatre.store.open("s")).abandon_turn()
        chat = await theatre.runtime().resume("s")
    return theatre, chat


@pytest.mark.parametrize("by", ["abort", "cancel", "provider", "abandon"])
@pytest.mark.parametrize("policy", ["retry", "rollback", "ask", "continue"])
async def test_policy_decides_if_an_interrupted_answer_is_in_the_context(
    by: str, policy: InterruptPolicy
) -> None:
    theatre, chat = await cut(by, policy)
    (noted,) = await theatre.bodies(Interrupted)
    assert [part.text for part in noted.partial.parts if isinstance(part, TextPart)] == ["so f"]
    (entry,) = [each for each in await theatre.entries() if each.kind == Interrupted.kind]
    (called,) = [each for each in await theatre.entries() if each.kind == ModelCalled.kind]
    assert (entry.lane, entry.about) == ("side", called.id)
    kept = ["go", "so f"] if policy == "continue" else ["go"]
    assert [message.text for message in await chat.session.messages()] == kept
    assert (await chat.send("go on")).text == "yes"
    sent = " ".join(message.text for message in theatre.players.requests[-1].messages)
    assert ("so f" in sent) == (policy == "continue")


async def test_answer_interrupted_before_any_text_adds_no_message() -> None:
    begun = (ThinkingDelta("hm"), ToolCallDelta(0, "c", "look", '{"a"'))
    theatre = Theatre(main=[(*begun, ModelUnavailable("p:main", "broke"))])
    chat = await theatre.chat(on_interrupt="continue")
    with pytest.raises(TurnFailed):
        await chat.send("go")
    (noted,) = await theatre.bodies(Interrupted)
    assert noted.partial.tool_calls == ()
    assert [message.role for message in await chat.session.messages()] == ["user"]


async def test_answer_cut_by_the_provider_is_restarted_without_its_partial_text() -> None:
    theatre = Theatre(main=[(*BEGUN, ModelUnavailable("p:main", "broke"))], other=[words("whole")])
    chat = await theatre.chat(on_interrupt="continue", restart_on_cut=True, fallbacks=["p:other"])
    assert (await chat.send("go")).text == "whole"
    assert len(await theatre.bodies(Interrupted)) == 1
    assert [message.text for message in await chat.session.messages()] == ["go", "whole"]
