"""A turn is committed with writes to other streams: all writes are stored, or none."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from perdure.client.agents.chat import Chat
from perdure.engine.turns.co_commit import CoCommit
from perdure.engine.turns.session_turns import Signals
from perdure.engine.turns.state import TurnState
from perdure.errors import LeaseHeld
from perdure.session.codec import new_side
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import StreamId, blob_hash
from perdure.session.info import StreamHeader
from perdure.session.ledger import TurnFinished, TurnStarted
from perdure.session.messages import user
from perdure.session.notes import SessionEnded
from perdure.stores.protocol import Commit, Write
from tests.fakes.chats import Stage, says

OTHER = StreamId("other")
S = StreamId("s")


class Together:
    """A participant that writes a note to another stream at the start and end of a turn."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.asked = 0
        self.refused: type | None = None
        self.rival: str | None = None
        self.blobs: tuple[bytes, ...] = ()
        self.appended: list[Entry] = []

    async def beside(self, entries: Sequence[NewEntry]) -> CoCommit:
        """See ``CommitParticipant``."""
        kinds = {entry.kind for entry in entries}
        told = [kind for kind in (TurnStarted, TurnFinished) if kind.kind in kinds]
        if not told:
            return CoCommit()
        self.asked += 1
        if self.refused in told:
            raise LookupError("it is not wanted any more")
        head = (await self.stage.memory.state(OTHER)).head
        if self.rival is not None:
            note, self.rival = self.rival, None
            await self.stage.memory.commit(Commit(writes=(_note(note, head),), at=0))
        return CoCommit((_note(told[0].kind, head),), self.blobs)

    def committed(self, entries: Sequence[Sequence[Entry]]) -> None:
        """See ``CommitParticipant``."""
        self.appended += [entry for share in entries for entry in share]


def _note(text: str, head: int) -> Write:
    return Write(stream=OTHER, entries=(new_side(SessionEnded(reason=text)),), expected_head=head)


async def place() -> tuple[Stage, Together, Chat]:
    stage = Stage(says("done"))
    header = StreamHeader(OTHER, stage.clock.now_ms())
    first = Write(stream=OTHER, create=header, entries=(new_side(SessionEnded(reason="made")),))
    await stage.memory.commit(Commit(writes=(first,), at=0))
    return stage, Together(stage), await stage.chat()


async def run(chat: Chat, companion: Together) -> TurnState:
    return await chat._running.new_turn(user("go"), (), Signals(companion))  # pyright: ignore[reportPrivateUsage] - flows run turns through it, not through a chat


async def notes(stage: Stage) -> list[str]:
    bodies = [entry.body.decode() for entry in await stage.memory.entries(OTHER)]
    return [body.partition('"reason":"')[2].partition('"')[0] for body in bodies]


async def test_participant_writes_are_in_the_first_and_last_commit() -> None:
    stage, companion, chat = await place()
    companion.blobs = (b"an artifact",)
    before = await stage.memory.position()
    await run(chat, companion)
    assert await notes(stage) == ["made", "turn_started", "turn_finished"]
    told = [p.entry.kind for p in await stage.memory.feed(before) if p.entry.stream == OTHER]
    assert told == ["session_ended", "session_ended"]
    assert await stage.memory.blob(blob_hash(b"an artifact")) == b"an artifact"


async def test_commit_participant_that_rejects_the_start_prevents_the_turn() -> None:
    stage, companion, chat = await place()
    companion.refused = TurnStarted
    with pytest.raises(LookupError):
        await run(chat, companion)
    assert await stage.kinds() == ["session_started"]
    assert await notes(stage) == ["made"]
    assert (await stage.memory.state(S)).open_turn is None


async def test_commit_participant_that_rejects_the_end_leaves_the_turn_open() -> None:
    stage, companion, chat = await place()
    companion.refused = TurnFinished
    with pytest.raises(LookupError):
        await run(chat, companion)
    assert (await stage.memory.state(S)).open_turn is not None
    assert await notes(stage) == ["made", "turn_started"]


async def test_commit_participant_is_called_again_after_its_stream_changed() -> None:
    stage, companion, chat = await place()
    companion.rival = "somebody else"
    await run(chat, companion)
    assert companion.asked == 3
    assert [entry.seq for entry in companion.appended] == [
        2,
        3,
    ]  # without rejected ones
    assert await notes(stage) == ["made", "somebody else", "turn_started", "turn_finished"]
    assert (await stage.memory.maintenance.verify()).is_ok


async def test_commit_participant_is_called_only_under_the_lease() -> None:
    stage, companion, chat = await place()
    await stage.memory.acquire_lease(S, "elsewhere", 60_000)
    with pytest.raises(LeaseHeld):
        await run(chat, companion)
    assert companion.asked == 0
