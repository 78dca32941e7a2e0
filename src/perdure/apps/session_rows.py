"""The rows in a list of sessions: the session, its agent, and its state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Literal

import msgspec

from perdure.client.conversation.agent_binding import BINDING_KINDS, Binding, binding_in
from perdure.client.store import Store
from perdure.errors import AmbiguousId, SessionNotFound
from perdure.session.clock import ms_of, timestamp
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.info import SessionInfo, SoughtStatus
from perdure.session.notes import PROGRAM
from perdure.stores.copy import with_forks
from perdure.stores.protocol import SessionScope

SessionState = Literal["running", "waiting", "interrupted", "scheduled", "idle", "ended"]
"""The state of a session in a list.

``running``: some process runs a turn. ``waiting``: the turn waits for a person. ``interrupted``: a
turn is open and no process runs it. ``scheduled``: the first message is not due yet.
"""

_LEAST_READ = 50
"""Minimum number of sessions that a filtered list reads at a time."""


class SessionRow(msgspec.Struct, frozen=True):
    """A session in a list, with the id of its agent."""

    info: SessionInfo
    agent: str | None
    state: SessionState


class RowParts(msgspec.Struct, frozen=True, kw_only=True):
    """Texts that the sessions of a list must contain, ignoring case."""

    agent: str | None = None
    subject: str | None = None
    source: str | None = None
    folder: str | None = None

    def match(self, info: SessionInfo) -> bool:
        """Return whether `info` contains all texts; the text for the agent is not checked."""
        return (
            _contains(info.subject, self.subject)
            and _contains(info.source, self.source)
            and _contains(info.cwd, self.folder)
        )


class RowFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The filters of a list of sessions.

    Filtering by `model` needs a read for each session.

    If `among` is given, only the sessions in `among` are listed. With `hides_ended`, ended sessions
    are not listed.
    """

    scope: SessionScope = "listed"
    cwd: str | None = None
    query: str | None = None
    subject: str | None = None
    source: str | None = None
    status: SoughtStatus | None = None
    state: SessionState | None = None
    agents: frozenset[str] = frozenset()
    model: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    parts: RowParts = RowParts()
    among: frozenset[str] | None = None
    hides_ended: bool = False


async def newest_rows(
    store: Store,
    wanted: RowFilter,
    limit: int | None,
    after: str | SessionInfo | None = None,
    *,
    has_models: bool = False,
    has_agents: bool = True,
) -> list[SessionRow]:
    """Return at most `limit` sessions that match `wanted`, newest activity first.

    `after` is the last session of the previous page. If `has_models` is True, each row contains the
    session's model. If `has_agents` is False, agents are read only if a filter needs them.
    Raises: the errors of `Store.recent`.
    """
    recent = partial(
        store.recent,
        scope=wanted.scope,
        cwd=wanted.cwd,
        query=wanted.query,
        subject=wanted.subject,
        source=wanted.source,
        status=wanted.status,
    )
    size = None if limit is None else max(limit, _LEAST_READ if _is_narrow(wanted) else 0)
    found: list[SessionRow] = []
    while part := await recent(size, after=after):
        states = await states_of(store, part)
        agents: dict[StreamId, str | None] = {}
        if has_agents or wanted.agents or wanted.parts.agent is not None:
            agents = await agents_of(store, [info for info in part if _is_match(info, wanted)])
        for info in part:
            if limit is not None and len(found) == limit:
                break
            if wanted.state not in (None, states[info.id]):
                continue
            row = await _row(store, info, wanted, agents, has_models=has_models)
            if row is not None:
                found.append(SessionRow(row, agents.get(info.id), states[info.id]))
        is_over = wanted.since is not None and part[-1].updated_at < ms_of(wanted.since)
        if size is None or len(part) < size or len(found) == limit or is_over:
            break
        after = part[-1]
    return found


def _is_narrow(wanted: RowFilter) -> bool:
    """Return whether some filter of `wanted` is applied after the rows were read."""
    times = wanted.since or wanted.until
    return bool(wanted.agents or wanted.model or wanted.state or times or wanted.hides_ended) or (
        wanted.parts != RowParts() or wanted.among is not None
    )


def _contains(text: str | None, part: str | None) -> bool:
    return part is None or part.casefold() in (text or "").casefold()


def _is_match(info: SessionInfo, wanted: RowFilter) -> bool:
    """Return whether `info` matches the filters that need no further read."""
    if wanted.since is not None and info.updated_at < ms_of(wanted.since):
        return False
    if wanted.until is not None and info.updated_at >= ms_of(wanted.until):
        return False
    if wanted.hides_ended and info.status == "ended":
        return False
    return wanted.parts.match(info) and (wanted.among is None or info.id in wanted.among)


async def _row(
    store: Store,
    info: SessionInfo,
    wanted: RowFilter,
    agents: Mapping[StreamId, str | None],
    *,
    has_models: bool,
) -> SessionInfo | None:
    """Return the row for `info` (with a model if `has_models`); None if `info` does not match."""
    agent = agents.get(info.id)
    if not _is_match(info, wanted):
        return None
    if not wanted.agents <= {agent} or not _contains(agent, wanted.parts.agent):
        return None
    if has_models or wanted.model is not None:
        info = await (await store.open(info.id)).info()
    return info if _contains(info.model, wanted.model) else None


async def agents_of(store: Store, infos: Sequence[SessionInfo]) -> dict[StreamId, str | None]:
    """Return the result of `agent_of` for each of `infos`, by session id, with one read.

    If the log of a fork names no agent, the result contains the agent of the fork's origin, which
    needs another read.
    """
    if not infos:
        return {}
    notes = defaultdict[StreamId, list[Entry]](list)
    for note in await store.backend.notes_of_all(BINDING_KINDS, [info.id for info in infos]):
        notes[note.stream].append(note)
    found: dict[StreamId, str | None] = {}
    for info in infos:
        bound = binding_in(notes[info.id])
        is_of_origin = bound is None and info.parent is not None
        found[info.id] = await agent_of(store, info.id) if is_of_origin else _agent_in(bound)
    return found


async def agent_of(store: Store, session: StreamId) -> str | None:
    """Return the id of the newest agent in the log of `session`; None if the log names none."""
    return _agent_in(binding_in(await store.backend.notes(session, BINDING_KINDS)))


def _agent_in(bound: Binding | None) -> str | None:
    found = (bound.agent or {}).get("id") if bound is not None else None
    return found if isinstance(found, str) else None


def row_data(info: SessionInfo) -> dict[str, object]:
    """Return the row of a session as JSON data."""
    return {
        "id": info.id,
        "title": info.name or None,
        "cwd": info.cwd,
        "created_at": timestamp(info.created_at),
        "updated_at": timestamp(info.updated_at),
        "messages": info.messages,
        "entries": info.entries,
        "parent": info.parent,
        "status": info.status,
        "source": info.source,
        "subject": info.subject,
        "metadata": info.metadata,
    }


async def states_of(store: Store, infos: Iterable[SessionInfo]) -> dict[str, SessionState]:
    """Return the state of each session in `infos`, by session id."""
    infos = list(infos)
    interrupted, waiting, scheduled = set[str](), set[str](), set[str]()
    if any(info.open_turn is not None for info in infos):
        found = await store.recent(None, scope="all", status="interrupted")
        interrupted = {str(info.id) for info in found}
        waiting = await waiting_sessions(store)

    if any(_is_unused(info) for info in infos):
        scheduled = {str(message.session) for message in await store.schedule.list()}

    def state(info: SessionInfo) -> SessionState:
        if _is_unused(info) and info.id in scheduled:
            return "scheduled"
        if info.open_turn is None:
            return "ended" if info.status in ("ended", "exported") else "idle"
        if info.id in waiting:
            return "waiting"
        return "interrupted" if info.id in interrupted else "running"

    return {info.id: state(info) for info in infos}


async def waiting_sessions(store: Store) -> set[str]:
    """Return the ids of the sessions whose turn waits for a person.

    The result includes sessions whose invoked agent waits for a person.
    """
    waiting: set[str] = set()
    for asked in await store.questions():
        if asked.question.topic == PROGRAM:
            continue
        stream: StreamId | None = StreamId(asked.id.rpartition("/")[0])
        while stream is not None and stream not in waiting:
            waiting.add(stream)
            header = (await store.backend.state(stream)).header
            stream = header.parent if header.origin == "subagent" else None
    return waiting


def _is_unused(info: SessionInfo) -> bool:
    return info.messages == 0 and info.open_turn is None and info.status == "active"


_SHORTEST_ID = 8


def is_fork(info: SessionInfo) -> bool:
    """Whether `info` is a fork of its parent.

    Subagents and roles of flows also have parents, but are not forks.
    """
    return info.parent is not None and info.origin != "subagent" and not info.is_role


async def with_all_forks(store: Store, chosen: Iterable[StreamId]) -> list[StreamId]:
    """Return the `chosen` sessions and all their forks, including forks of forks.

    If a fork is a copy, only the field `parent` of the fork names its origin. In session files,
    every fork is a copy.
    Shape: each origin comes before its forks.
    """
    infos = await store.backend.sessions(limit=None, scope="all")
    parents = {info.id: info.parent for info in infos if is_fork(info)}
    moment = [
        msgspec.structs.replace(each, origin=each.origin or parents.get(each.stream))
        for each in await store.backend.maintenance.segment_states()
    ]
    return with_forks(moment, chosen)


async def short_ids(store: Store, ids: Sequence[str]) -> dict[str, str]:
    """Return the shortest unique prefix of each id, with 8 or more characters."""
    ordered = sorted(set(ids))
    found: dict[str, str] = {}
    for before, id, after in zip(["", *ordered], ordered, [*ordered[1:], ""], strict=False):
        least = max(_SHORTEST_ID - 1, _common(before, id), _common(id, after)) + 1
        found[id] = await _short(store, id, least)
    return found


async def _short(store: Store, id: str, length: int) -> str:
    """Return the shortest prefix of `id` with at least `length` characters that identifies `id`."""
    while length < len(id):
        try:
            if await store.find(id[:length]) == id:
                return id[:length]
            length += 1  # it is the whole id of another
        except AmbiguousId as error:
            others = [_common(id, other) for other in error.candidates if other != id]
            length = max(length, *others) + 1
        except SessionNotFound:  # another process erased it
            break
    return id


def _common(one: str, other: str) -> int:
    """Return the length of the common prefix of `one` and `other`."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
