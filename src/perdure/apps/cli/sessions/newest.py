"""A search without words: the newest messages that match filters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.client.store import Store
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import SessionInfo, SessionScope
from perdure.session.kinds import MESSAGE
from perdure.session.notes import is_copy
from perdure.session.search.query import Sought
from perdure.session.search.values import Hit, SearchQuery, SearchRole
from perdure.stores.scan import Found, found_entry, hit_of, is_wanted

_MESSAGES: tuple[SearchRole, ...] = ("user", "assistant", "tool", "system", "context")
_OF_ACTIVITY = frozenset({"user", "assistant"})
"""The roles of messages that count as activity of their session."""


async def newest_hits(store: Store, query: SearchQuery | None, *, scope: SessionScope) -> list[Hit]:
    """Return the newest texts that match the filters of `query`, newest first.

    If `query` names no roles, only messages match. Only sessions of `scope` match. If a session and
    its forks or copies contain the same text, the text is returned only for the oldest of these
    sessions. If one session contains the same text several times, all of these texts are returned.
    `query` is None if no session can match the filters.
    """
    if query is None:
        return []
    infos = await store.recent(None, scope=scope)
    found: dict[object, tuple[list[Found], SessionInfo]] = {}
    for info in infos:
        if query.sessions and info.id not in query.sessions:
            continue
        if _is_too_old(info, query, (each for same, _ in found.values() for each in same)):
            break
        own: dict[object, list[Found]] = {}
        for each in await _texts(store, info, query):
            own.setdefault((each.at, each.what.role, each.what.text), []).append(each)
        for key, same in own.items():
            if key not in found or info.created_at < found[key][1].created_at:
                found[key] = same, info
    texts = [each for same, _ in found.values() for each in same]
    texts.sort(key=lambda each: (each.at, each.stream, each.position), reverse=True)
    return await _hits(store, texts, query)


def _is_too_old(info: SessionInfo, query: SearchQuery, found: Iterable[Found]) -> bool:
    """Return whether neither `info` nor any session with older activity can have a hit."""
    if not query.roles or not _OF_ACTIVITY.issuperset(query.roles):
        return False
    if query.since is not None and info.updated_at < query.since:
        return True
    if query.is_on_branch is not None:
        return False
    times = sorted((each.at for each in found), reverse=True)
    return len(times) >= query.limit and info.updated_at < times[query.limit - 1]


async def _texts(store: Store, info: SessionInfo, query: SearchQuery) -> list[Found]:
    """Return the matching texts in the log of one session, without copies from another session."""
    roles = query.roles or _MESSAGES
    kind = MESSAGE if set(roles) <= set(_MESSAGES) else None
    entries = await store.backend.entries(info.id, kind=kind)
    texts = [found_entry(each.seq, each, None) for each in entries if not is_copy(each.body)]
    return [
        each
        for each in texts
        if each is not None and each.what.role in roles and is_wanted(each, query)
    ]


async def _hits(store: Store, texts: Sequence[Found], query: SearchQuery) -> list[Hit]:
    branches: dict[StreamId, frozenset[EntryId]] = {}
    hits: list[Hit] = []
    for each in texts:
        if len(hits) == query.limit:
            break
        if each.stream not in branches:
            branches[each.stream] = await _branch(store, each.stream)
        is_on_branch = each.target is None or each.target in branches[each.stream]
        if query.is_on_branch in (None, is_on_branch):
            hits.append(hit_of(each, 0.0, Sought(()), is_on_branch=is_on_branch))
    return hits


async def _branch(store: Store, stream: StreamId) -> frozenset[EntryId]:
    """Return the ids of the entries on the current branch of `stream`."""
    state = await store.backend.state(stream)
    return frozenset(entry.id for entry in await store.backend.branch(stream, state.leaf))
