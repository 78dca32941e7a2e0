"""Report what the last turn of a session recalled, and which messages it left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from perdure.bounds.short_repr import ShortRepr
from perdure.client.memory.fact_writes import find_fact
from perdure.errors import PerdureError
from perdure.memory.episodes import summary_of
from perdure.memory.knowledge import Source, agent_subject, source_of
from perdure.memory.question import question_of
from perdure.session.codec import readable, role_of
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import received_entries
from perdure.session.ledger import Trimmed, TurnStarted
from perdure.session.memory.kinds import ContextRecalled, RecalledText, RecallReason
from perdure.session.notes import SessionReceived
from perdure.session.search.searchable import searchable_of
from perdure.session.search.words import terms
from perdure.stores.search.corpus import WordClass
from perdure.stores.session_store import SessionStore

_PAGE = 200


class RecalledPiece(ShortRepr, frozen=True, kw_only=True):
    """A text that a turn recalled; `text` is None if the text is erased or out of scope.

    `words` are the words that occur both in the text and in the message of the turn. `why` names
    the reasons for the recall; `why` is empty for a fact.
    Shape: `score` is None for a fact.
    """

    kind: Literal["fact", "said", "knowledge", "episode"]
    id: EntryId
    text: str | None
    words: tuple[str, ...] = ()
    why: tuple[RecallReason, ...] = ()
    score: float | None = None
    source: Source | None = None


class LastTurn(ShortRepr, frozen=True, kw_only=True):
    """What the last turn recalled, and which messages its newest request left out.

    If the recall is incomplete, `problem` says why. `trimmed` is None if no message was left out.
    """

    turn: int
    recalled: tuple[RecalledPiece, ...] = ()
    problem: str | None = None
    trimmed: Trimmed | None = None


async def last_turn_of(store: SessionStore, session: StreamId) -> LastTurn | None:
    """Return what the last turn in the log of `session` recalled; None if there is no turn.

    The running time is proportional to the length of the turn. Raises: SessionNotFound.
    """
    return await memory_of_turn(store, await _last_turn(store, session))


async def memory_of_turn(store: SessionStore, entries: Sequence[Entry]) -> LastTurn | None:
    """Return what the turn with `entries` recalled; None if the first entry starts no turn."""
    started = None if not entries else readable(entries[0])
    if not isinstance(started, TurnStarted):
        return None
    bodies = [readable(entry) for entry in entries]
    recalled = next((body for body in bodies if isinstance(body, ContextRecalled)), None)
    trimmed = next((body for body in reversed(bodies) if isinstance(body, Trimmed)), None)
    question = next((e.message for e in entries if role_of(e) == "user"), None)
    pieces: list[RecalledPiece] = []
    if recalled is not None:
        asked = () if question is None else question_of(question.text, entries[0].at).words
        seen = await _seen_by(store, entries[0], started.agent)
        pieces += [await _fact_piece(store, fact, asked, seen) for fact in recalled.facts]
        pieces += [await _said_piece(store, text, asked, seen) for text in recalled.texts]
    return LastTurn(
        turn=started.number,
        recalled=tuple(pieces),
        problem=None if recalled is None else recalled.problem,
        trimmed=trimmed,
    )


async def _last_turn(store: SessionStore, session: StreamId) -> Sequence[Entry]:
    """Return the entries of `session` from the start of its last turn to the end."""
    before, found = (await store.state(session)).head + 1, list[Entry]()
    while before > 0:
        first = max(before - _PAGE, 0)
        page = await store.entries(session, first - 1, before - first)
        for place in range(len(page) - 1, -1, -1):
            if page[place].kind == TurnStarted.kind:
                return [*page[place:], *found]
        found, before = [*page, *found], first
    return ()


class _Seen(NamedTuple):
    """The scope of a turn's recall.

    Each text is checked against the scope, because a turn from another store can name any text.
    """

    subject: str | None
    agent: str | None

    def has_subject(self, subject: str | None) -> bool:
        is_knowledge = self.agent is not None and subject == agent_subject(self.agent)
        return subject == self.subject or is_knowledge


async def _seen_by(store: SessionStore, turn: Entry, agent: str) -> _Seen:
    """Return the scope of the recall in the turn that begins with the entry `turn`.

    For a turn that was received from another store, the agent is unknown.
    Raises: SessionNotFound.
    """
    header = (await store.state(turn.stream)).header
    notes = await store.notes(turn.stream, (SessionReceived.kind,))
    is_received = turn.seq < received_entries(header, turn.stream, notes)
    return _Seen(header.subject, None if is_received else agent)


async def _fact_piece(
    store: SessionStore, fact: EntryId, asked: Sequence[WordClass], seen: _Seen
) -> RecalledPiece:
    text = None
    with suppress(PerdureError):  # forgotten since
        found = await find_fact(store, fact)
        if found.subject == seen.subject and found.agent in (None, seen.agent):
            text = found.text
    return RecalledPiece(kind="fact", id=fact, text=text, words=_words_in(text, asked))


async def _said_piece(
    store: SessionStore, said: RecalledText, asked: Sequence[WordClass], seen: _Seen
) -> RecalledPiece:
    text, source, summary = None, None, None
    with suppress(PerdureError):  # erased since
        header = (await store.state(said.session)).header
        if header.kind == "session" and seen.has_subject(header.subject):
            entry = await store.entry(said.session, said.entry)
            summary, source = summary_of(entry), source_of(entry)
            found = summary or searchable_of(entry)
            text = None if found is None else found.text[said.start : said.end]
    kind = "said" if source is None else "knowledge"
    return RecalledPiece(
        kind=kind if summary is None else "episode",
        id=said.entry,
        text=text,
        words=_words_in(text, asked),
        why=said.why,
        score=said.score,
        source=source,
    )


def _words_in(text: str | None, asked: Iterable[WordClass]) -> tuple[str, ...]:
    """Return the words of the question that `text` contains."""
    said = frozenset(terms(text or ""))
    return tuple(word.asked for word in asked if any(map(word.contains, said)))
