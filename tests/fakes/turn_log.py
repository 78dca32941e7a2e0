"""A log of one stream in memory, for tests of the turn machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from perdure.engine.turns.config import ToolFacts, TurnConfig
from perdure.engine.turns.inputs import Begin, Input
from perdure.engine.turns.machine import step
from perdure.engine.turns.state import TurnState, fold
from perdure.session.codec import body_of, new_side
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import EntryId, StreamId
from perdure.session.messages import Message, user
from perdure.session.notes import SideBody

Body = TypeVar("Body")

STREAM = StreamId("s")
TOOLS = {
    "retry": ToolFacts("read", "retry", is_async=True),
    "ask": ToolFacts("write", "ask", is_async=True),
    "never": ToolFacts("external", "never", is_async=True),
}
CONFIG = TurnConfig(agent="a", model="p:m", tools=TOOLS)


def empty_state() -> TurnState:
    """Return the state of a session without entries."""
    return TurnState(stream=STREAM, head=-1)


class TurnLog:
    """A log in memory: its entries in order, and the end of each commit."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.commits: list[int] = []

    def append(self, new: Sequence[NewEntry]) -> list[Entry]:
        """Append `new` as one commit."""
        added = [
            Entry(
                STREAM,
                len(self.entries) + n,
                entry.lane,
                None,
                entry.about if isinstance(entry.about, str) else None,
                0,
                entry.kind,
                entry.v,
                entry.body,
            )
            for n, entry in enumerate(new)
        ]
        self.entries += added
        self.commits.append(len(self.entries))
        return added

    @property
    def kinds(self) -> list[str]:
        """The kinds of all entries."""
        return [entry.kind for entry in self.entries]

    @property
    def messages(self) -> list[Message]:
        """Return the messages of the conversation."""
        return [m for entry in self.entries if (m := entry.message) is not None]

    def bodies(self, kind: type[Body]) -> list[Body]:
        """Return the bodies of one class, in order."""
        return [body for entry in self.entries if isinstance(body := body_of(entry), kind)]


class Course:
    """A turn and its log; the test makes each step of the turn."""

    def __init__(self, config: TurnConfig = CONFIG, *, ran: int = 0) -> None:
        self.config = config
        self.log = TurnLog()
        self.state = empty_state()
        self.happens(Begin(user("go"), ran + 1, None, 10, ran))

    def happens(self, happened: Input) -> TurnState:
        """Make a step, append its entries and fold the entries; return the new state."""
        decided = step(self.state, happened, self.config, 0)
        self.state = fold(self.state, self.log.append(decided.entries))
        assert self.state == decided.state
        return self.state

    def others_append(self, body: SideBody, about: EntryId | None = None) -> None:
        """Append a side entry as another writer."""
        self.state = fold(self.state, self.log.append([new_side(body, about)]))
