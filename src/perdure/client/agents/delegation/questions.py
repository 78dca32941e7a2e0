"""Questions of invoked agents; their invoker waits, too."""

from __future__ import annotations

import msgspec

from perdure.client.conversation.lineage import Child, children_of
from perdure.client.reads import OpenQuestion, open_questions
from perdure.session.ids import StreamId
from perdure.stores.protocol import LogReader


class AskedBelow(msgspec.Struct, frozen=True):
    """A question in the session of an invoked agent, with that agent."""

    question: OpenQuestion
    child: Child

    @property
    def asker(self) -> str:
        """The asking agent, as displayed."""
        return self.child.agent or "an agent"


async def asked_below(store: LogReader, session: StreamId, at: int) -> list[AskedBelow]:
    """Return the open questions of all agents that `session` invoked, at any depth.

    Shape: oldest first. Units: `at`, the time now, is Unix milliseconds.
    """
    found: list[AskedBelow] = []
    waiting = [session]
    while waiting:
        for child in await children_of(store, waiting.pop()):
            waiting.append(child.info.id)
            own = await store.open_questions(child.info.id)
            found += [AskedBelow(asked, child) for asked in open_questions(own, at)]
    return sorted(found, key=lambda asked: asked.question.at)
