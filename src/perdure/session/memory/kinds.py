"""Bodies of the entries of memory: episodes in session streams, facts in memory streams.

Each call of `remember`, `correct` or `forget` is one entry of a stream of kind ``memory``. There is
one memory stream for each subject of a namespace, and one for facts without a subject.
"""

from __future__ import annotations

import hashlib
from typing import ClassVar, Literal

import msgspec

from perdure.session.ids import EntryId, StreamId
from perdure.session.messages import Usage
from perdure.session.notes import SideBody

EpisodeEnd = Literal["user", "idle", "agent", "flow", "import"]
"""How an episode ended: together with its session or its flow, or at the end of an import."""

SaidBy = Literal["person", "tool", "inferred"]
"""The source of a fact: a person said it, a tool returned it, or a model concluded it."""


RecallReason = Literal["words", "neighbours", "speaker", "date", "time", "vector"]
"""Why a text was recalled."""


class EpisodeRecorded(SideBody, frozen=True, omit_defaults=True):
    """An episode of a session: the entries from `first` to the entry to which `about` refers.

    The entry is written in the same commit as the ``session_ended`` that ends the episode.
    `messages`, `turns` and `tool_calls` count the messages, turns and tool calls of the episode in
    the session's own log.
    Units: Unix milliseconds.
    """

    kind: ClassVar[str] = "episode"
    event: ClassVar[str] = "session:episode_recorded"

    first: int
    started_at: int
    ended_at: int
    by: EpisodeEnd = "user"
    title: str | None = None
    agent: str | None = None
    messages: int = 0
    turns: int = 0
    tool_calls: int = 0
    summary: str | None = None


class FactRemembered(SideBody, frozen=True, omit_defaults=True):
    """A fact about the subject of the stream; this entry's id is the id of the fact.

    `sources` are the entries that the fact comes from. `agent` is the agent that remembers the
    fact; None means any agent.
    Units: `valid_from` and `valid_to` are Unix milliseconds; None means that the fact has no start
    or no end.
    """

    kind: ClassVar[str] = "fact_remembered"
    event: ClassVar[str] = "memory:fact_remembered"

    text: str
    agent: str | None = None
    sources: tuple[EntryId, ...] = ()
    said_by: SaidBy = "person"
    valid_from: int | None = None
    valid_to: int | None = None


class FactCorrected(SideBody, frozen=True, omit_defaults=True):
    """A newer version of the fact to which `about` refers; the older versions are its history."""

    kind: ClassVar[str] = "fact_corrected"
    event: ClassVar[str] = "memory:fact_corrected"

    text: str
    agent: str | None = None
    sources: tuple[EntryId, ...] = ()
    said_by: SaidBy = "person"
    valid_from: int | None = None
    valid_to: int | None = None


class FactForgotten(SideBody, frozen=True):
    """The fact to which `about` refers was forgotten.

    The same commit erases the fact's versions.
    """

    kind: ClassVar[str] = "fact_forgotten"
    event: ClassVar[str] = "memory:fact_forgotten"


class FactSourcesErased(SideBody, frozen=True):
    """Some sources of the fact to which `about` refers were erased; other sources remain."""

    kind: ClassVar[str] = "fact_sources_erased"
    event: ClassVar[str] = "memory:fact_sources_erased"

    sources: tuple[EntryId, ...]


class FactsReceived(SideBody, frozen=True):
    """The `count` entries before this one were read from a file.

    If `count` is 0, the entry only stores the idempotency key of a call that remembered a known
    fact, to which `about` refers.
    """

    kind: ClassVar[str] = "facts_received"
    event: ClassVar[str] = "memory:facts_received"

    count: int


class FactsDue(SideBody, frozen=True):
    """The extractor of `agent` must extract the facts of the episode that ends at `about`.

    The entry is written in the commit of the session's end, if the session's agent has an
    extractor.
    """

    kind: ClassVar[str] = "facts_due"
    event: ClassVar[str] = "memory:facts_due"

    agent: str


class FactsCaptured(SideBody, frozen=True, omit_defaults=True):
    """The extraction that a ``facts_due`` entry requested is done; this commit contains its facts.

    `facts` are the ids of the new facts. `problem` is the reason why the extraction failed. `model`
    and `usage` are set if a model was called.
    """

    kind: ClassVar[str] = "facts_captured"
    event: ClassVar[str] = "memory:facts_captured"

    facts: tuple[EntryId, ...] = ()
    problem: str | None = None
    model: str | None = None
    usage: Usage | None = None


class RecalledText(msgspec.Struct, frozen=True, omit_defaults=True):
    """The characters `start` to `end` of the text of an entry.

    If `end` is None, the range goes to the end of the text. `why` are the reasons for the recall;
    they contain no word of the text or of the question.
    """

    session: StreamId
    entry: EntryId
    start: int = 0
    end: int | None = None
    score: float = 0.0
    why: tuple[RecallReason, ...] = ()


class ContextRecalled(SideBody, frozen=True, omit_defaults=True):
    """The texts recalled for the turn to which `about` refers.

    All model calls of the turn receive the texts. The entry refers to the texts but does not
    contain them, so erased texts are not sent any more. `facts` are the ids of the recalled facts.
    `boundary` marks the recalled text in a request; it cannot be guessed. `problem` is the reason
    why nothing, or not everything, was recalled.
    """

    kind: ClassVar[str] = "context_recalled"
    event: ClassVar[str] = "memory:context_recalled"

    boundary: str
    texts: tuple[RecalledText, ...] = ()
    facts: tuple[EntryId, ...] = ()
    problem: str | None = None


FACT_TEXTS = (FactRemembered.kind, FactCorrected.kind)
"""Kinds of the entries that contain a version of a fact."""

FACT_KINDS = (*FACT_TEXTS, FactForgotten.kind, FactSourcesErased.kind, FactsReceived.kind)
"""Kinds of the entries that facts are folded from."""


def memory_stream(subject: str | None) -> StreamId:
    """Return the id of the stream of facts about `subject`.

    The id is computed from the subject, so that two processes that both remember a first fact use
    the same stream.
    """
    named = b"" if subject is None else b"subject\0" + subject.encode("utf-8", "surrogatepass")
    return StreamId("memory-" + hashlib.blake2b(named, digest_size=16).hexdigest())
