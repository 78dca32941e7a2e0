"""Questions of invoked agents; the invoking agent also waits for the answers."""

from __future__ import annotations

import msgspec

from perdure.client.conversation.lineage import Child, children_of
from perdure.client.reads import OpenQuestion, open_questions
from perdure.engine.turns.requests import stop_of_turn
from perdure.session.ids import StreamId
from perdure.stores.protocol import LogReader


class AskedBelow(msgspec.Struct, frozen=True):
    """A question in the session of an invoked agent, and the agent that asks it."""

    question: OpenQuestion
    child: Child

    @property
    def asker(self) -> str:
        """The displayed name of the agent that asks the question."""
        return self.child.agent or "an agent"


async def asked_below(store: LogReader, session: StreamId, at: int) -> list[AskedBelow]:
    """Return the open questions of all agents that `session` invoked, at any depth.

    Shape: oldest first. Units: `at` is the current time in Unix milliseconds.
    """
    found: list[AskedBelow] = []
    waiting = [session]
    while waiting:
        for child in await children_of(store, waiting.pop()):
            waiting.append(child.info.id)
            own = await store.open_questions(child.info.id)
            found += [AskedBelow(asked, child) for asked in open_questions(own, at)]
    return sorted(found, key=lambda asked: asked.question.at)


async def awaited_sessions(store: LogReader, stream: StreamId, at: int) -> set[StreamId]:
    """Return the sessions with the questions that the open turn of `stream` waits for.

    The result can contain the session itself and the sessions of the agents that it invoked. The
    result is empty if the turn can continue, or if a stop was requested. Units: `at` is Unix
    milliseconds. Raises: SessionNotFound.
    """
    turn = (await store.state(stream)).open_turn
    if turn is None or await stop_of_turn(store, stream, turn) is not None:
        return set()
    own = open_questions(await store.open_questions(stream), at)
    found = {stream} if own else set[StreamId]()
    return found | {asked.child.info.id for asked in await asked_below(store, stream, at)}
