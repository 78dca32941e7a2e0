"""Input typed while a turn ends is answered next."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator

import pytest

import perdure
from perdure.apps.chat import conversation
from perdure.apps.chat.attachments import Attached
from perdure.apps.chat.conversation import Conversation
from perdure.apps.chat.line_chat import LineChat
from perdure.apps.chat.session import AnswerOptions
from perdure.apps.terminal.event_lines import QuietTeller
from perdure.apps.terminal.line_input import TypedLines
from perdure.client.agents.chat import Chat, steer_open
from perdure.client.agents.message_secrets import Said
from perdure.client.store import Store
from perdure.models.scenario import Hang, Reply, Say, Scenario
from perdure.session.entries import Entry
from perdure.stores.protocol import LogReader
from tests.concurrency.test_message_order import said_in


@pytest.fixture
def typed() -> Generator[TypedLines]:
    """The lines of a terminal without input."""
    ours, theirs = os.openpty()
    yield TypedLines(theirs)
    os.close(ours)
    os.close(theirs)


class LateTyping(LineChat):
    """A line chat whose line `late` is typed after a turn ends and before its display ends.

    The display ends `steps` steps after the first line is passed to the turn.
    """

    def __init__(self, store: Store, lines: TypedLines, late: list[str], steps: int) -> None:
        answering = AnswerOptions(store, model="scripted:echo", scenario=None)
        super().__init__(answering, lines, QuietTeller(), None)
        self.typed, self._late, self._steps = lines, late, steps
        self._is_passed = asyncio.Event()
        self._conversation = Passing(answering, self, self._is_passed)

    async def end_turn(self, chat: Chat) -> None:
        """Type the next line, and end the turn while the line is being passed to it."""
        self._is_passed.clear()
        self.typed.put_back([self._late.pop(0)])
        await self._is_passed.wait()
        for _ in range(self._steps):
            await asyncio.sleep(0)
        await super().end_turn(chat)


class Passing(Conversation):
    """A conversation that signals when a text is passed to its turn."""

    def __init__(
        self, answering: AnswerOptions, display: LineChat, is_passed: asyncio.Event
    ) -> None:
        super().__init__(answering, display, None)
        self._is_passed = is_passed

    async def steer(self, text: str) -> None:
        """Signal the call, and pass the text to the turn."""
        self._is_passed.set()
        await super().steer(text)

    def defer(self, text: str) -> None:
        """Signal the call, and leave the chat after the command."""
        self._is_passed.set()
        super().defer(text)
        super().defer("/quit")


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 20])
async def test_line_typed_while_a_turn_ends_is_answered_by_the_next_turn(
    typed: TypedLines, steps: int
) -> None:
    async with perdure.open("memory:") as store:
        chat = LateTyping(store, typed, ["second", "third", "/quit"], steps)
        typed.put_back(["first"])
        assert await chat.run(None) == 0
        (info,) = await store.recent()
        session = await store.open(info.id)
        messages = [entry.message async for entry in session.entries() if entry.message]
    talk = [(message.role, message.text.partition("“")[2][:6]) for message in messages]
    roles = [role for role, _ in talk]
    assert roles == ["user", "assistant"] * 3
    assert [text for role, text in talk if role == "assistant"] == ["first”", "second", "third”"]


@pytest.mark.parametrize("typed_text", ["!echo a-secret", "!!echo a-secret", "/cost"])
async def test_command_typed_during_a_turn_runs_after_the_turn(
    typed: TypedLines, typed_text: str
) -> None:
    async with perdure.open("memory:") as store:
        chat = LateTyping(store, typed, [typed_text], 20)
        typed.put_back(["first"])
        assert await chat.run(None) == 0
        (info,) = await store.recent()
        session = await store.open(info.id)
        entries = [entry async for entry in session.entries()]
    assert said_in(entries) == ["first"]
    ran = [entry.seq for entry in entries if b"a-secret" in entry.body]
    assert (ran == [entries[-1].seq]) == typed_text.startswith("!")


@pytest.mark.parametrize("typed_text", ["!", "!! ", " !"])
async def test_exclamation_mark_without_command_is_reported_and_not_sent(
    typed: TypedLines, capsys: pytest.CaptureFixture[str], typed_text: str
) -> None:
    async with perdure.open("memory:") as store:
        answering = AnswerOptions(store, model="scripted:echo", scenario=None)
        talk = Conversation(answering, LineChat(answering, typed, QuietTeller(), None), None)
        async with answering.runtime:
            await talk.obey(typed_text)
            assert await store.recent() == []
            told = f"{typed_text.strip()} needs a command: !COMMAND runs it in your shell"
            assert told in capsys.readouterr().err
            await talk.obey("!!!")
            assert len(await store.recent()) == 1


@pytest.mark.parametrize("steps", range(4))
async def test_steering_text_is_kept_if_its_sending_is_cancelled(
    typed: TypedLines, steps: int
) -> None:
    """The task that passes the text to the turn is cancelled at one of its first steps."""
    async with perdure.open("memory:") as store:
        answering = AnswerOptions(store, model="scripted:echo", scenario=None)
        talk = Conversation(answering, LineChat(answering, typed, QuietTeller(), None), None)
        async with answering.runtime:
            await talk.obey("first")
            assert talk.chat is not None
            passing = asyncio.create_task(talk.steer("second"))
            for _ in range(steps + 1):
                await asyncio.sleep(0)
            passing.cancel()
            await asyncio.wait((passing,))
            entries = [entry async for entry in talk.chat.session.entries()]
    assert said_in(entries) == ["first"]
    assert talk.take_late() == ["second"]
    assert talk.take_late() == []


async def test_early_steering_text_waits_until_the_turn_begins(
    typed: TypedLines,
) -> None:
    answers = (Reply(steps=(Say("one"),)), Reply(steps=(Hang(),)))
    async with perdure.open("memory:") as store:
        scenario = Scenario(name="held", sequence=answers)
        answering = AnswerOptions(store, model=None, scenario=scenario)
        talk = Conversation(answering, LineChat(answering, typed, QuietTeller(), None), None)
        async with answering.runtime:
            await talk.obey("first")
            assert talk.chat is not None
            turn = talk.chat.send("second")
            await talk.steer("third")
            await talk.chat.abort()
            assert (await turn).end == "aborted"
            entries = [entry async for entry in talk.chat.session.entries()]
    assert said_in(entries) == ["first", "second", "third"]
    assert talk.take_late() == []


async def test_file_attached_during_steering_waits_for_the_next_message(
    typed: TypedLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (Attached(name, 1, name) for name in ("one.txt", "two.txt"))
    answers = (Reply(steps=(Say("one"),)), Reply(steps=(Hang(),)))
    async with perdure.open("memory:") as store:
        scenario = Scenario(name="held", sequence=answers)
        answering = AnswerOptions(store, model=None, scenario=scenario)
        talk = Conversation(answering, LineChat(answering, typed, QuietTeller(), None), None)

        async def steer_while_attaching(log: LogReader, chat: Chat, said: Said) -> Entry | None:
            talk.attached.append(second)
            return await steer_open(log, chat, said)

        monkeypatch.setattr(conversation, "steer_open", steer_while_attaching)
        async with answering.runtime:
            await talk.obey("first")
            assert talk.chat is not None
            turn = talk.chat.send("second")
            talk.attached.append(first)
            await talk.steer("third")
            await talk.chat.abort()
            await turn
    assert talk.attached == [second]
