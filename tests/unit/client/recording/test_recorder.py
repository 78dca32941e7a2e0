"""Content that a request repeats is stored once; the session branches if a request differs."""

from __future__ import annotations

import pytest

import perdure
from perdure.client.recording.calls import RecordedRequest, RecordedResponse
from perdure.client.recording.recorder import Recorder
from perdure.session.messages import Message, assistant, user


def asking(*messages: Message, previous: str | None = None) -> RecordedRequest:
    return RecordedRequest("chat", messages, previous)


async def test_repeated_conversation_is_appended_once() -> None:
    async with perdure.open("memory:") as store:
        recorder = Recorder(store, "s", None, "ana")
        at = await recorder.begin(asking(user("1")))
        await recorder.finish(at, RecordedResponse(assistant("one"), "r1"), is_complete=True)
        again = await recorder.begin(asking(user("1"), assistant("one"), user("2")))
        await recorder.finish(again, RecordedResponse(assistant("two")), is_complete=False)
        later = Recorder(store, "s", None, None)
        await later.begin(asking(user("3"), previous="r1"))
        session = await store.open("s")
        assert session.subject == "ana"
        assert len(await session.tree_entries()) == 5
        assert [message.text for message in await session.messages()] == ["1", "one", "3"]
        unfinished = (await session.tree_entries())[3].message
        assert unfinished is not None
        assert unfinished.stop_reason == "aborted"


async def test_session_of_another_subject_is_refused_and_unchanged() -> None:
    async with perdure.open("memory:") as store:
        await Recorder(store, "s", None, "ana").begin(asking(user("of ana")))
        other = Recorder(store, "s", None, "bob")
        for _ in range(2):
            with pytest.raises(perdure.errors.WrongArgument, match="another subject"):
                await other.begin(asking(user("of bob")))
        messages = await (await store.open("s")).messages()
        assert [message.text for message in messages] == ["of ana"]


async def test_failure_to_record_a_message_is_stored_as_a_note() -> None:
    async with perdure.open("memory:") as store:
        recorder = Recorder(store, "s", None, None)
        at = await recorder.begin(asking(user("1")))
        await recorder.fail(at, "the line broke")
        await recorder.finish(at, RecordedResponse(None), is_complete=True)
        await recorder.begin(asking(user("half a pair: \ud83d")))
        session = await store.open("s")
        notes = [perdure.body_of(entry) async for entry in session.notes("recorded.failure")]
        reasons = [str(note.data["reason"]) for note in notes if isinstance(note, perdure.Note)]
        assert reasons[:2] == ["the line broke", "the response has no message"]
        assert reasons[2].startswith("a message could not be stored")
