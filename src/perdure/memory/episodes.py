"""Episodes: the parts of a session; each begins after the previous one.

`EpisodeFold` counts the entries of an episode; `episodes_in` returns recorded episodes. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Literal, cast

import msgspec
from msgspec.structs import replace

from perdure.bounds.short_repr import ShortRepr
from perdure.session.codec import readable
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId, entry_place
from perdure.session.info import SessionInfo
from perdure.session.ledger import TurnStarted
from perdure.session.memory.kinds import EpisodeEnd, EpisodeRecorded, FactsCaptured, FactsDue
from perdure.session.messages import MESSAGE, decode_message
from perdure.session.notes import AgentBound, SessionStarted


class _AgentId(msgspec.Struct):
    id: str | None = None


class _AgentOnly(msgspec.Struct):
    agent: _AgentId | None = None


_agent_only = msgspec.json.Decoder(_AgentOnly)
"""Decodes only the agent's id: a snapshot is long, and a recall may read thousands of them."""

_BINDINGS = frozenset((each.kind, each.version) for each in (SessionStarted, AgentBound))

_HAS_CALL = b'"tool_call"'
_SUMMARY = b'"summary"'


class Episode(ShortRepr, frozen=True, kw_only=True):
    """A part of a session; it begins at the session's start or after the previous episode.

    Shape: `id` is the id of the episode's last entry; for a closed session, this is the
    ``session_ended`` entry. The history of the episode consists of the entries `first` to `last` in
    the log of `session`; the counts cover these entries. `extraction` is the state of the fact
    extraction; None if the agent has no fact extractor. `extraction_problem` is the reason why the
    extraction failed.
    Units: Unix milliseconds.
    """

    id: EntryId
    session: StreamId
    subject: str | None
    agent: str | None
    first: int
    last: int
    started_at: int
    ended_at: int
    by: EpisodeEnd
    title: str | None
    messages: int
    turns: int
    tool_calls: int
    summary: str | None = None
    extraction: Literal["due", "done", "failed"] | None = None
    extraction_problem: str | None = None

    @property
    def cursor(self) -> str:
        """Return the ``after`` value with which ``Memory.episodes`` lists the earlier episodes."""
        return f"{self.ended_at}:{self.id}"


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of an episode, stored in the entry `entry` of the session.

    Shape: `episode` is the id of the episode. Units: Unix milliseconds.
    """

    entry: EntryId
    episode: EntryId
    session: StreamId
    agent: str | None
    text: str
    at: int


class EpisodeFold:
    """Collects the data of an episode from the episode's entries."""

    def __init__(self) -> None:
        self.messages = 0
        self.turns = 0
        self.tool_calls = 0
        self.started_at: int | None = None

    def add(self, kind: str, body: bytes, v: int, at: int) -> None:
        """Add the next entry of the episode."""
        self.started_at = at if self.started_at is None else min(self.started_at, at)
        if kind == TurnStarted.kind:
            self.turns += 1
        elif kind == MESSAGE:
            self.messages += 1
            if _HAS_CALL in body:
                self.tool_calls += _calls_in(body, v)

    def recorded(
        self, info: SessionInfo, first: int, ended_at: int, by: EpisodeEnd, agent: str | None
    ) -> EpisodeRecorded:
        """Return the entry body that records the episode of session `info` from seq `first` on."""
        return EpisodeRecorded(
            first=first,
            started_at=ended_at if self.started_at is None else min(self.started_at, ended_at),
            ended_at=ended_at,
            by=by,
            title=info.title,
            agent=agent,
            messages=self.messages,
            turns=self.turns,
            tool_calls=self.tool_calls,
        )


def _calls_in(body: bytes, v: int) -> int:
    try:
        return len(decode_message(body, v).tool_calls)
    except (ValueError, RecursionError):
        return 0


def next_first(episodes: Iterable[Entry], before: int) -> int:
    """Return the seq at which the episode that contains `before` begins.

    The episode begins after the newest of `episodes` that ended before `before`. If no episode
    ended before `before`, the result is 0.
    """
    ends = (_seq_of(entry) for entry in episodes)
    return max((end + 1 for end in ends if end is not None and end < before), default=0)


def _seq_of(note: Entry) -> int | None:
    """Return the seq of the entry that `note` refers to; None if it is in another session.

    Only a forged side entry refers to an entry of another session.
    """
    if note.about is None:
        return None
    stream, seq = entry_place(note.about)
    return seq if stream == note.stream else None


def agent_in(notes: Iterable[Entry]) -> str | None:
    """Return the id of the session's agent, according to the newest of the side entries `notes`."""
    given = tuple(notes)
    newest = max(given, key=lambda note: note.seq, default=None)
    if newest is not None and (newest.kind, newest.v) in _BINDINGS and not newest.is_erased:
        with suppress(ValueError, RecursionError):
            agent = _agent_only.decode(newest.body).agent
            return None if agent is None else agent.id
    found = _snapshot_in(given).get("id")
    return found if isinstance(found, str) else None


def has_extractor(notes: Iterable[Entry]) -> bool:
    """Whether the session's agent, according to the newest of `notes`, has a fact extractor."""
    memory = _snapshot_in(notes).get("memory")
    return isinstance(memory, dict) and cast("dict[str, object]", memory).get("extractor") in (
        "model",
        "program",
    )


def _snapshot_in(notes: Iterable[Entry]) -> dict[str, object]:
    for entry in sorted(notes, key=lambda note: note.seq, reverse=True):
        body = readable(entry)
        if isinstance(body, SessionStarted | AgentBound):
            return body.agent or {}
    return {}


def episodes_in(notes: Iterable[Entry], infos: Mapping[StreamId, SessionInfo]) -> Iterator[Episode]:
    """Yield the episodes recorded in `notes` for the sessions `infos`, with their extractions."""
    recorded: list[Entry] = []
    due: dict[EntryId, EntryId | None] = {}
    done: dict[EntryId | None, FactsCaptured] = {}
    for note in notes:
        body = None if _seq_of(note) is None else readable(note)
        if isinstance(body, EpisodeRecorded):
            recorded.append(note)
        elif isinstance(body, FactsDue):
            due[note.id] = note.about
        elif isinstance(body, FactsCaptured) and note.about is not None:
            done[due.get(note.about)] = body
    asked = set(due.values())
    for note in recorded:
        info = infos.get(note.stream)
        episode = None if info is None else _episode_of(note, info)
        if episode is None:
            continue
        if episode.id in asked:
            outcome = done.get(episode.id)
            problem = None if outcome is None else outcome.problem
            state = "due" if outcome is None else "done" if problem is None else "failed"
            episode = replace(episode, extraction=state, extraction_problem=problem)
        yield episode


def summaries_in(notes: Iterable[Entry]) -> Iterator[Summary]:
    """Yield the summaries of the episodes that are recorded in the side entries `notes`."""
    for note in notes:
        if _SUMMARY in note.body and (found := summary_of(note)) is not None:
            yield found


def summary_of(note: Entry) -> Summary | None:
    """Return the summary of the episode recorded in `note`; None if there is no summary."""
    body = None if _seq_of(note) is None else readable(note)
    if not isinstance(body, EpisodeRecorded) or note.about is None or not body.summary:
        return None
    return Summary(
        entry=note.id,
        episode=note.about,
        session=note.stream,
        agent=body.agent,
        text=body.summary,
        at=body.ended_at,
    )


def _episode_of(entry: Entry, info: SessionInfo) -> Episode | None:
    """Return the episode that `entry` of the session `info` records; None if it is not readable.

    The subject of the episode comes from the session, because an import does not include the
    subject.
    """
    body, last = readable(entry), _seq_of(entry)
    if not isinstance(body, EpisodeRecorded) or entry.about is None or last is None:
        return None
    return Episode(
        id=entry.about,
        session=entry.stream,
        subject=info.subject,
        agent=body.agent,
        first=min(max(body.first, 0), last),
        last=last,
        started_at=body.started_at,
        ended_at=body.ended_at,
        by=body.by,
        title=body.title or info.name or None,
        messages=body.messages,
        turns=body.turns,
        tool_calls=body.tool_calls,
        summary=body.summary,
    )
