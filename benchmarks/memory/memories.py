"""Conversations in a store, and the three ways to query them: search, recall and reference."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import perdure
from benchmarks.memory.conversations import Conversation, Language, Line, Place, Session
from benchmarks.memory.reference import Reference, Techniques, question_words
from perdure.client.memory.embedding import TextVectors
from perdure.memory.arrays import ArraySums
from perdure.memory.question import question_of
from perdure.memory.ranking import Scope, Weights, ranking
from perdure.memory.sums import PlainSums
from perdure.models.embedders.protocol import Embedder
from perdure.stores.search.recall_plan import Asked

DEPTH = 1_000
"""The number of requested entries, which is enough to find the first ten sessions."""

Asker = Callable[[str], Awaitable[Sequence[Place]]]
"""Answers a question with entries, best first."""

FIRST_HOUR = timedelta(hours=9)


class Memory:
    """A store with `conversations`, and the line of the conversations for each entry."""

    def __init__(
        self,
        store: perdure.Store,
        conversations: Sequence[Conversation],
        embedder: Embedder | None = None,
    ) -> None:
        self.store = store
        self.memory = store.memory.with_embedder(embedder)
        self._vectors = None if embedder is None else TextVectors(store.backend, embedder)
        self.conversations = conversations
        self._places = dict[str, Place]()

    async def fill(self) -> None:
        """Append every session, with speakers and times."""
        for conversation in self.conversations:
            for session in conversation.sessions:
                await self._append(session)
        if self._vectors is not None:
            await self.memory.embed()

    async def _append(self, session: Session) -> None:
        kept = await self.store.create(title=session.heading.title, id=session.heading.session)
        messages = [_message(session, line) for line in session.lines]
        entries = await kept.append_many(messages)
        for entry, line in zip(entries, session.lines, strict=True):
            self._places[entry.id] = Place(session.heading.session, line.entry)

    async def searched(self, question: str) -> list[Place]:
        """Return the hits of `store.search` for any of the words."""
        languages: list[Language] = [each.listed.language for each in self.conversations]
        words = question_words(languages, question)
        hits = await self.store.search(any_of(words), limit=DEPTH)
        return [self._places[hit.entry] for hit in hits if hit.entry in self._places]

    async def recalled(self, question: str) -> list[Place]:
        """Return the hits of `store.memory.recall`."""
        hits = await self.memory.recall(question, limit=DEPTH)
        return [self._places[hit.entry_id] for hit in hits]

    def asker(self, techniques: Techniques) -> Asker:
        """Return a function that recalls with the weights of `techniques`.

        The other fields of `techniques` have no effect.
        """
        weights = Weights(*(getattr(techniques, name) for name in Weights._fields))

        async def ask(question: str) -> list[Place]:
            asked = question_of(question, self.store.outside.clock.now_ms())
            sums, model = PlainSums, None
            if self._vectors is not None:
                sums, meaning = ArraySums, await self._vectors.meaning(question)
                asked, model = asked._replace(meaning=meaning), meaning.model
            rank = ranking(asked, Scope(), DEPTH, sums, weights)
            found = await self.store.backend.search.recall(Asked(asked.words, rank, model))
            entries = [each.found.entry for each in found]
            return [self._places[entry.id] for entry in entries if entry is not None]

        return ask


@asynccontextmanager
async def filled(
    address: str,
    conversations: Sequence[Conversation],
    namespace: str = "default",
    embedder: Embedder | None = None,
) -> AsyncGenerator[Memory]:
    """Yield a store at `address` whose `namespace` contains `conversations`."""
    async with perdure.open(address, namespace=namespace) as store:
        memory = Memory(store, conversations, embedder)
        await memory.fill()
        yield memory


def any_of(words: Sequence[str]) -> str:
    """Return a query that finds any of `words`."""
    return " OR ".join(f'"{word}"' for word in words)


def reference(conversations: Sequence[Conversation], techniques: Techniques) -> Asker:
    """Ask the reference."""
    ranking = Reference(conversations, techniques)

    async def ask(question: str) -> Sequence[Place]:
        return ranking.ranked(question)[:DEPTH]

    return ask


def _message(session: Session, line: Line) -> perdure.Message:
    at = session.heading.at
    said_at = None
    if at is not None:
        began = datetime.fromisoformat(at).replace(tzinfo=UTC)
        began += FIRST_HOUR if len(at) == len("1771-05-04") else timedelta()
        said_at = began + timedelta(minutes=line.entry)
    if line.role == "tool":
        return perdure.tool_result(f"call-{line.entry - 1}", line.text)
    if line.role == "user":
        return perdure.user(line.text, author=line.author, said_at=said_at)
    calls = (
        []
        if line.command is None
        else [perdure.tool_call(f"call-{line.entry}", "shell", {"command": line.command})]
    )
    return perdure.assistant(line.text, *calls, author=line.author, said_at=said_at)
