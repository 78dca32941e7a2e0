"""The conversations of the benchmark and their questions, as stored in the files in ``data``.

A conversation is a file of JSON lines: each line with ``session`` begins a session, and the lines
after it are its entries, numbered from 1. The questions are in a second file. Each question lists
the entries that answer it, with some words of each entry, so that `problems` finds a wrong number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

DATA = Path(__file__).parent / "data"

Role = Literal["user", "assistant", "tool"]
Language = Literal["english", "german", "french"]


class Place(NamedTuple):
    """An entry of a conversation: its session, and its number in the session."""

    session: str
    entry: int


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An entry: its author and its text. `command` is the argument of an assistant's tool call."""

    entry: int
    text: str
    author: str | None = None
    role: Role = "user"
    command: str | None = None

    @property
    def words(self) -> str:
        """The searchable text: the text of the entry, and the command of a tool call."""
        return self.text if self.command is None else f"{self.text}\n{self.command}"


class Heading(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The first line of a session; `at` is a day, or a day and a time of it (UTC)."""

    session: str
    title: str
    at: str | None = None


class Session(NamedTuple):
    """A session of a conversation: its first line and its entries."""

    heading: Heading
    lines: Sequence[Line]


class Evidence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry that answers a question, and words of that entry."""

    session: str
    entry: int
    holds: str

    @property
    def place(self) -> Place:
        """The entry."""
        return Place(self.session, self.entry)


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question as a person asks it.

    `kind` is what the question asks: a ``fact``, ``who`` said something, or ``when`` it was. A
    ``paraphrase`` uses other words than the answer.
    """

    question: str
    kind: Literal["fact", "who", "when", "paraphrase"]
    evidence: tuple[Evidence, ...]


class Listed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of ``conversations.json``. Each conversation belongs to one half.

    Weights fitted on the conversations of one half are tested on those of the other.
    """

    name: str
    language: Language
    half: Literal[1, 2]


class Conversation(NamedTuple):
    """A conversation in sessions, and the questions about it."""

    listed: Listed
    sessions: Sequence[Session]
    questions: Sequence[Question]

    def lines(self) -> Iterator[tuple[Place, Line]]:
        """All entries in order."""
        for session in self.sessions:
            for line in session.lines:
                yield Place(session.heading.session, line.entry), line


class Collection:
    """The conversations of the benchmark, which are in `folder`."""

    def __init__(self, folder: Path = DATA) -> None:
        self.folder = folder

    @cached_property
    def conversations(self) -> Sequence[Conversation]:
        """The conversations, in the order of ``conversations.json``."""
        rows = (self.folder / "conversations.json").read_bytes()
        return [self._read(each) for each in msgspec.json.decode(rows, type=list[Listed])]

    def _read(self, listed: Listed) -> Conversation:
        sessions = list[Session]()
        lines = list[Line]()
        for raw in (self.folder / f"{listed.name}.jsonl").read_bytes().splitlines():
            if raw.startswith(b'{"session"'):
                lines = []
                sessions.append(Session(msgspec.json.decode(raw, type=Heading), lines))
            else:
                lines.append(msgspec.json.decode(raw, type=Line))
        asked = (self.folder / f"{listed.name}.questions.jsonl").read_bytes().splitlines()
        questions = [msgspec.json.decode(raw, type=Question) for raw in asked]
        return Conversation(listed, sessions, questions)


def problems(conversation: Conversation) -> Iterator[str]:
    """Yield each problem: wrong entry numbers, missing evidence, evidence with other words."""
    name = conversation.listed.name
    said = {place: line.words for place, line in conversation.lines()}
    for session in conversation.sessions:
        if [line.entry for line in session.lines] != list(range(1, len(session.lines) + 1)):
            yield f"{name}: {session.heading.session}: the entries are not numbered from 1"
    for asked in conversation.questions:
        if not asked.evidence:
            yield f"{name}: {asked.question!r} has no evidence"
        for each in asked.evidence:
            text = said.get(each.place)
            if text is None:
                yield f"{name}: {asked.question!r}: no entry {each.session}/{each.entry}"
            elif each.holds not in text:
                yield f"{name}: {each.session}/{each.entry} does not hold {each.holds!r}"
