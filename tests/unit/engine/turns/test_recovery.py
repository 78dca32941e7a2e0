"""An open turn is restored from the log, or abandoned."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from perdure.client.agents.chat import Chat
from perdure.engine.turns.carried import carried_state
from perdure.engine.turns.lease import Claim
from perdure.engine.turns.recovery import (
    IdleState,
    Recollection,
    expire,
    give_up,
    interrupt,
    lost_effect,
    open_turn,
)
from perdure.engine.turns.state import Phase
from perdure.errors import LeaseHeld, SessionNotFound
from perdure.models.scenario import Hang
from perdure.session.codec import body_of, new_side
from perdure.session.ids import EntryId, StreamId
from perdure.session.ledger import (
    Interrupted,
    ModelCalled,
    ModelFinished,
    Spending,
    TurnFinished,
    TurnStarted,
)
from perdure.session.messages import Usage, user
from perdure.session.notes import Answer, SessionInfoChanged
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, CommitResult, Write
from perdure.tools.spec import ToolSpec
from tests.fakes.chats import Stage, calls, says, until
from tests.fakes.players import Theatre, asks
from tests.fakes.rivals import meanwhile

S = StreamId("s")


async def run(call: object) -> Any:
    raise AssertionError("nobody approved it")


STRIKE = ToolSpec("strike", "Strike.", {"type": "object"}, run, action="os", is_gated=True)


def claim_of(stage: Stage) -> Claim:
    return Claim(stage.memory, S, stage.clock, "after", 1_000)


async def cut_in_mid_answer() -> tuple[Stage, Chat]:
    stage = Stage(says("so far", Hang()))
    chat = await stage.chat()
    chat.send("go")
    await stage.kept()
    await chat.suspend()
    return stage, chat


async def test_open_turn_is_restored_with_partial_answer() -> None:
    stage, _ = await cut_in_mid_answer()
    turn = await open_turn(stage.memory, S)
    assert turn is not None
    assert turn.phase is Phase.CALLING
    gone = await lost_effect(stage.memory, turn)
    assert gone.has_begun
    assert gone.partial is not None
    assert gone.partial.text == "so far"
    assert turn.open_call is not None
    later = msgspec.structs.replace(turn.open_call, seq=turn.open_call.seq + 1)
    another = msgspec.structs.replace(turn, open_call=later)
    assert not (await lost_effect(stage.memory, another)).has_begun


async def test_unreadable_partial_answer_counts_as_missing() -> None:
    stage, _ = await cut_in_mid_answer()
    turn = await open_turn(stage.memory, S)
    assert turn is not None
    assert turn.open_call is not None
    lease = await stage.memory.acquire_lease(S, "x", 1_000)
    await stage.memory.put_partial(lease, turn.open_call.seq, b"\xff{")
    gone = await lost_effect(stage.memory, turn)
    assert gone.has_begun
    assert gone.partial is None


async def test_restore_of_session_without_open_turn_returns_none() -> None:
    stage = Stage()
    with pytest.raises(SessionNotFound):
        await open_turn(stage.memory, S)
    await stage.chat()
    assert await open_turn(stage.memory, S) is None
    assert await give_up(claim_of(stage)) is None


async def test_closing_the_turn_of_a_dead_process_keeps_its_partial_answer() -> None:
    stage, chat = await cut_in_mid_answer()
    closed = await give_up(claim_of(stage))
    assert closed is not None
    assert (await stage.memory.state(S)).open_turn is None
    assert [m.text for m in await chat.session.messages()] == ["go"]
    noted = [body_of(note) for note in await stage.memory.notes(S, (Interrupted.kind,))]
    assert [n.partial.text for n in noted if isinstance(n, Interrupted)] == ["so far"]
    await chat.session.branch(None)


async def test_session_abandons_turn_of_dead_process_automatically() -> None:
    stage, chat = await cut_in_mid_answer()
    session = await stage.store.open("s")
    assert await session.abandon_turn()
    assert not await session.abandon_turn()
    assert await session.branch(None) is not None
    assert session.leaf is None
    assert chat.id == session.id


async def test_running_turn_cannot_be_abandoned() -> None:
    entered = asyncio.Event()

    async def wait() -> str:
        entered.set()
        await asyncio.Event().wait()
        return "never"

    stage = Stage(says(calls("wait")))
    chat = await stage.chat([wait])
    chat.send("go")
    await entered.wait()
    with pytest.raises(LeaseHeld):
        await give_up(claim_of(stage))
    await chat.abort()


async def test_new_turn_restores_the_session_state_from_a_log_of_any_length() -> None:
    stage = Stage(*[says(str(n), usage=Usage(1, 1, cost_microcents=n)) for n in range(1, 9)])
    chat = await stage.chat()
    for _ in range(4):
        await chat.send("go")
    for n in range(200):
        await chat.session.append(user(str(n)))
    head = (await stage.memory.state(S)).head
    assert (await carried_state(stage.memory, S, head)).spent == Spending(1 + 2 + 3 + 4)
    await chat.send("go")
    head = (await stage.memory.state(S)).head
    assert (await carried_state(stage.memory, S, head)).spent.cost_microcents > 10


async def test_spending_of_old_turns_is_computed_from_their_calls() -> None:
    stage = Stage()
    session = await stage.store.create(id="s")
    lease = await stage.memory.acquire_lease(S, "x", 1_000)
    for number in (1, 2):
        old = (
            new_side(TurnStarted(number, "a")),
            new_side(ModelCalled(1, "p:m")),
            new_side(ModelFinished("stop", Usage(1, cost_microcents=number))),
            new_side(TurnFinished("stop")),
        )
        write = Write(stream=S, entries=old, lease=lease)
        await stage.memory.commit(Commit(writes=(write,), at=0))
    head = (await session.info()).entries - 1
    assert (await carried_state(stage.memory, S, head)).spent == Spending(3)


async def test_only_new_entries_of_other_writers_are_read() -> None:
    stage = Stage(says("one"), says("two"))
    chat = await stage.chat()
    await chat.send("hi")
    state = await stage.memory.state(chat.id)
    known = Recollection(stage.memory, chat.session.id)
    read = await known.so_far(state.head)
    known.left, branch = read, known.branch
    await branch.now()
    assert await known.so_far(state.head) is read
    added = await chat.session.append(user("from elsewhere"))
    after = await known.so_far(state.head + 1)
    assert after == await carried_state(stage.memory, S, state.head + 1)
    assert known.left is after
    assert known.branch is branch
    assert branch.leaf == added.id


async def test_state_is_rebuilt_after_many_entries_of_other_writers() -> None:
    stage = Stage(says("one"))
    chat = await stage.chat()
    await chat.send("hi")
    state = await stage.memory.state(chat.id)
    known = Recollection(stage.memory, chat.session.id)
    known.left, branch = await known.so_far(state.head), known.branch
    await chat.session.append_many([user(str(n)) for n in range(100)])
    assert (await known.so_far(state.head + 100)).head == state.head + 100
    assert known.left is None
    assert known.branch is not branch


async def test_session_state_is_cached_after_turn() -> None:
    stage = Stage(says("one"))
    chat = await stage.chat()
    await chat.send("hi")
    state = await stage.memory.state(chat.id)
    known = Recollection(stage.memory, chat.session.id)
    assert known.standing is None
    known.left = await known.so_far(state.head)
    assert known.standing is None
    await known.branch.now()
    assert known.standing == IdleState(state.head, state.leaf, 1)


def append_before_next_commit(memory: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have another process append an entry right before the next commit."""
    commit = memory.commit

    async def late(waiting: Commit) -> CommitResult:
        monkeypatch.undo()
        await commit(
            Commit(
                writes=(Write(stream=S, entries=(new_side(SessionInfoChanged(title="later")),)),),
                at=0,
            )
        )
        return await commit(waiting)

    monkeypatch.setattr(memory, "commit", late)


@pytest.mark.parametrize("close", [give_up, interrupt])
async def test_turn_of_dead_process_is_closed_despite_concurrent_append(
    monkeypatch: pytest.MonkeyPatch, close: Callable[[Claim], Awaitable[object]]
) -> None:
    stage, _ = await cut_in_mid_answer()
    append_before_next_commit(stage.memory, monkeypatch)
    await close(claim_of(stage))
    assert (await stage.memory.state(S)).open_turn is None
    assert (await stage.kinds()).count(TurnFinished.kind) == 1


async def test_expired_question_ends_its_turn_despite_concurrent_append(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theatre = Theatre(main=[asks("strike")])
    chat = await theatre.chat(tools=(STRIKE,), question_expires_s=60.0)
    chat.send("go")

    async def is_asked() -> bool:
        return bool(await theatre.store.questions())

    await until(is_asked)
    await chat.suspend()
    theatre.clock.advance(60.0)
    append_before_next_commit(theatre.memory, monkeypatch)
    closed = await expire(Claim(theatre.memory, S, theatre.clock, "after", 1_000))
    assert closed is not None
    assert (await theatre.memory.state(S)).open_turn is None


async def test_answer_just_before_the_end_of_an_expired_question_keeps_the_turn_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theatre = Theatre(main=[asks("strike")])
    chat = await theatre.chat(tools=(STRIKE,), question_expires_s=60.0)
    chat.send("go")

    async def is_asked() -> bool:
        return bool(await theatre.store.questions())

    await until(is_asked)
    (asked,) = await theatre.store.questions()
    await chat.suspend()
    theatre.clock.advance(60.0)
    answer = Write(stream=S, entries=(new_side(Answer("deny", "ana"), EntryId(asked.id)),))
    earlier = Commit(writes=(answer,), at=1)  # by a process whose clock is behind
    meanwhile(
        monkeypatch, theatre.memory, TurnFinished.kind, partial(theatre.memory.commit, earlier)
    )
    assert await expire(Claim(theatre.memory, S, theatre.clock, "after", 1_000)) is None
    assert (await theatre.memory.state(S)).open_turn is not None
