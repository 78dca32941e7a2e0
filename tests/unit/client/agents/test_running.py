"""What a turn runs under: the branch's settings before the agent's."""

from __future__ import annotations

import pytest

from perdure.errors import InvalidTransition, TurnOpen
from perdure.models.scenario import Hang
from perdure.session.codec import body_of
from perdure.session.ids import StreamId
from perdure.session.kinds import ModelChange, ThinkingChange
from perdure.session.ledger import ModelCalled
from tests.fakes.chats import Stage, says, until


async def models_called(stage: Stage) -> list[str]:
    session = await stage.store.open("s")
    bodies = [body_of(entry) async for entry in session.entries()]
    return [body.model for body in bodies if isinstance(body, ModelCalled)]


async def test_a_change_of_model_holds_on_its_branch_only() -> None:
    stage = Stage(says("one"), says("two"))
    chat = await stage.chat()
    await chat.send("hi")
    there = chat.session.leaf
    await chat.session.append(ModelChange("scripted:echo"))
    await chat.send("hi")
    await chat.session.branch(there)
    await chat.send("hi")
    assert await models_called(stage) == ["scripted:test", "scripted:echo", "scripted:test"]


async def test_a_thinking_level_nobody_knows_is_passed_over() -> None:
    stage = Stage(says("one"))
    chat = await stage.chat()
    await chat.session.append(ThinkingChange("furious"))
    assert (await chat.send("hi")).text == "one"


async def test_an_open_turn_has_to_be_resumed_before_the_next() -> None:
    stage = Stage(says("so", Hang()))
    chat = await stage.chat()
    chat.send("go")

    async def is_kept() -> bool:
        return await stage.memory.partial(StreamId("s")) is not None

    await until(is_kept)
    await chat.suspend()
    with pytest.raises(TurnOpen, match="resume it"):
        await chat.send("another")
    with pytest.raises(TurnOpen):
        await chat.compact()


async def test_without_an_open_turn_there_is_none_to_recover() -> None:
    chat = await Stage().chat()
    with pytest.raises(InvalidTransition, match="recover"):
        await chat.recover()
