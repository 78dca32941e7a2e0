"""Record a session's episode in the commit that ends the session; add missing episodes later.

The end of a session and its episode are in one commit, so no crash can separate them. If another
program or an older version ended a session, the episode is missing. The next process that opens the
namespace adds the missing episode, exactly once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec

from perdure.errors import Erased, IdempotencyMismatch, PerdureError, SessionNotFound, StoreReadOnly
from perdure.memory.episodes import EpisodeFold, agent_in, has_extractor, next_first
from perdure.session.clock import Clock
from perdure.session.codec import new_side, readable
from perdure.session.entries import Entry, NewEntry, Sibling
from perdure.session.ids import StreamId
from perdure.session.info import SessionInfo
from perdure.session.memory.kinds import EpisodeEnd, EpisodeRecorded, FactsDue
from perdure.session.notes import AgentBound, SessionEnded, SessionStarted
from perdure.stores.protocol import Commit, LogReader, Write
from perdure.stores.session_store import SessionStore

_PAGE = 500

_log = logging.getLogger(__name__)


async def with_episode(
    log: LogReader,
    stream: StreamId,
    head: int,
    entries: tuple[NewEntry, ...],
    at: int,
    *,
    info: SessionInfo | None = None,
    summary: str | None = None,
) -> tuple[NewEntry, ...]:
    """Return `entries`; if they end the session, add the session's episode to them.

    `entries` are about to be appended after the entry with seq `head`. If `entries` contain no
    ``session_ended``, they are returned unchanged. The commit of the returned entries must expect
    `head` as the stream's head. `info` describes the session; if it is None, it is read from the
    store.
    Units: `at` is the time of the commit in Unix milliseconds.
    """
    place = next((n for n, new in enumerate(entries) if new.kind == SessionEnded.kind), None)
    if place is None:
        return entries
    ended = msgspec.json.decode(entries[place].body, type=SessionEnded)
    info = info or (await log.state(stream)).info
    body, notes = await _recorded(log, info, head, entries[: place + 1], by=ended.by, at=at)
    body = msgspec.structs.replace(body, summary=summary)
    added = [new_side(body, Sibling(place))]
    if body.agent is not None and body.messages and has_extractor(notes):
        added.append(new_side(FactsDue(body.agent), Sibling(place)))
    return (*entries, *added)


async def record_open_ends(store: SessionStore, clock: Clock) -> int:
    """Record the missing episode of each ended session; return the number of new episodes.

    A read-only store is not changed. A failure to record an episode is only logged, because it must
    not prevent opening a store.
    """
    found = 0
    try:
        for end in sorted(await store.open_of_all(SessionEnded.kind), key=lambda entry: entry.seq):
            found += await _record_end(store, clock, end)
    except StoreReadOnly:
        pass
    except PerdureError as error:
        _log.warning("episodes were not recorded: %s", error)
    return found


async def record_imports(store: SessionStore, clock: Clock) -> int:
    """Record an episode for each imported session with messages that are not in an episode yet.

    Returns the number of new episodes.
    """
    found = 0
    for info in await store.sessions(limit=None, scope="all"):
        if info.origin == "import" and info.status == "active" and info.open_turn is None:
            with suppress(SessionNotFound, Erased):
                new = await _up_to_newest(store, info.id, "import")
                found += new is not None and await _is_added(store, clock, info.id, new)
    return found


async def role_episodes(store: SessionStore, sessions: Iterable[StreamId]) -> tuple[Write, ...]:
    """Return the writes that record the episodes of the `sessions` of a flow's roles."""
    found: list[Write] = []
    for session in dict.fromkeys(sessions):
        with suppress(SessionNotFound):
            new = await _up_to_newest(store, session, "flow")
            if new is not None:
                found.append(Write(stream=session, entries=(new,)))
    return tuple(found)


async def _record_end(store: SessionStore, clock: Clock, end: Entry) -> bool:
    body = readable(end)
    by = body.by if isinstance(body, SessionEnded) else "user"
    with suppress(SessionNotFound, Erased):
        info = (await store.state(end.stream)).info
        recorded, _ = await _recorded(store, info, end.seq, by=by, at=end.at)
        return await _is_added(store, clock, end.stream, new_side(recorded, end.id))
    return False


async def _up_to_newest(store: SessionStore, session: StreamId, by: EpisodeEnd) -> NewEntry | None:
    """Return an episode up to the session's newest entry; None if it would contain no message."""
    state = await store.state(session)
    if state.info.status == "erased" or state.head < 0:
        return None
    (newest,) = await store.entries(session, state.head - 1, 1)
    recorded, _ = await _recorded(store, state.info, state.head, by=by, at=newest.at)
    return new_side(recorded, newest.id) if recorded.messages else None


async def _is_added(store: SessionStore, clock: Clock, session: StreamId, new: NewEntry) -> bool:
    """Append the episode `new`; return False if another process already appended it."""
    write = Write(stream=session, entries=(new,))
    key = f"episode:{new.about}"
    with suppress(IdempotencyMismatch):
        done = await store.commit(Commit(writes=(write,), at=clock.now_ms(), idempotency_key=key))
        return not done.is_replay
    return False


async def _recorded(
    log: LogReader,
    info: SessionInfo,
    head: int,
    new: Sequence[NewEntry] = (),
    *,
    by: EpisodeEnd,
    at: int,
) -> tuple[EpisodeRecorded, list[Entry]]:
    """Return the session's new episode, and the entries that record the agents of the session.

    The episode covers the entries after the end of the previous episode: the stored entries up to
    seq `head`, and the entries `new`.
    """
    stream = info.id
    notes = await log.notes(stream, (EpisodeRecorded.kind, SessionStarted.kind, AgentBound.kind))
    own = [note for note in notes if note.stream == stream and note.kind == EpisodeRecorded.kind]
    first = next_first(own, head + len(new))
    fold = EpisodeFold()
    after = first - 1
    while after < head:
        page = await log.entries(stream, after, min(_PAGE, head - after))
        for entry in page:
            fold.add(entry.kind, entry.body, entry.v, entry.at)
        if not page:
            break
        after = page[-1].seq
    for each in new:
        fold.add(each.kind, each.body, each.v, each.at or at)
    bindings = [note for note in notes if note.kind != EpisodeRecorded.kind]
    return fold.recorded(info, first, at, by, agent_in(bindings)), bindings
