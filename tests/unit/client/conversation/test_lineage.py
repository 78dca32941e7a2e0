from perdure.client.conversation.lineage import (
    child_id,
    children_of,
    delegated_to,
    first_turn,
    invocation_of,
    started_in,
)
from perdure.session.ids import StreamId, stream_id
from tests.fakes.players import Theatre, words

AT = 1_700_000_000_000


def test_id_of_a_child_session_depends_only_on_its_call() -> None:
    parent = StreamId("s")
    first = child_id(parent, AT, "s/4:0")
    assert first == child_id(parent, AT, "s/4:0") == stream_id(first)
    others = {child_id(parent, AT, "s/4:1"), child_id(StreamId("t"), AT, "s/4:0")}
    assert first not in others
    assert len(others) == 2


async def test_ordinary_session_has_no_parent_and_no_children() -> None:
    theatre = Theatre(main=[words("a"), words("b")])
    chat = await theatre.chat()
    stream = StreamId("s")
    assert await first_turn(theatre.memory, stream) is None
    await chat.send("one")
    await chat.send("two")
    turn = await first_turn(theatre.memory, stream)
    assert turn is not None
    assert turn.answer is not None
    assert turn.answer.text == "a"
    assert await children_of(theatre.memory, stream) == []
    assert await invocation_of(theatre.memory, await theatre.memory.state(stream)) is None
    started = await started_in(theatre.memory, stream)
    assert started is not None
    assert started.invoked_by is None


async def test_missing_session_has_no_spending() -> None:
    assert await delegated_to(Theatre().memory, StreamId("nowhere")) is None
