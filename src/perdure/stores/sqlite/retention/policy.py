"""Retention in the file: the policy, the protection of sessions, and session removal."""

from __future__ import annotations

import msgspec

from perdure.session.clock import RandomSource
from perdure.session.ids import StreamId
from perdure.session.info import LISTED_STATUSES, ORIGINS
from perdure.session.ledger import TurnRequested
from perdure.session.notes import Question
from perdure.stores.access.lease_term import is_running
from perdure.stores.retention.cascade import StreamErasure
from perdure.stores.retention.erase import EraseRequest
from perdure.stores.retention.policy import (
    Hold,
    Holding,
    Retention,
    is_over,
    oldest_kept,
)
from perdure.stores.sqlite.append import namespace_number
from perdure.stores.sqlite.log.usage import namespace_totals
from perdure.stores.sqlite.retention.erase_plan import forgotten, mark_streams, plan_of
from perdure.stores.sqlite.retention.erase_records import keep_new
from perdure.stores.sqlite.rows import Stream, Tables

_HOLDINGS = """
SELECT s.no, s.id, s.created_at, s.updated_at, s.head + 1, s.open_turn IS NOT NULL,
    s.owner IS NOT NULL AND s.until - ? BETWEEN 1 AND 86400000, coalesce(b.size, 0)
FROM stream AS s LEFT JOIN (
    SELECT stream, sum(length(body)) AS size FROM entry GROUP BY stream
) AS b ON b.stream = s.no
WHERE s.namespace = (SELECT no FROM namespace WHERE name = ?) AND s.kind = 'session'
    AND s.status <> 'erased'
"""

_FORKS = """
SELECT b.origin, s.id FROM birth AS b JOIN stream AS s ON s.no = b.stream
WHERE b.origin IS NOT NULL AND s.namespace = (SELECT no FROM namespace WHERE name = ?)
"""

_WAITS = """
SELECT 1 FROM open_question AS q CROSS JOIN entry AS e ON e.stream = q.stream AND e.seq = q.seq
WHERE q.stream = ?1 AND q.namespace = (SELECT namespace FROM stream WHERE no = ?1) AND e.kind = ?2
LIMIT 1
"""

_HAS_OLDER = """
SELECT 1 FROM stream WHERE kind = 'session' AND status <> 'erased'
    AND namespace = (SELECT no FROM namespace WHERE name = ?) AND created_at < ? LIMIT 1
"""

_HAS_IDLE = """
SELECT 1 FROM stream WHERE kind = 'session'
    AND namespace = (SELECT no FROM namespace WHERE name = ?) AND origin = ? AND status = ?
    AND updated_at < ? LIMIT 1
"""


_POLICY = """
SELECT policy FROM retention WHERE namespace = (SELECT no FROM namespace WHERE name = ?)
"""

_policy = msgspec.json.Decoder(Retention)


def policy_of(tables: Tables, namespace: str) -> Retention:
    """Return the policy of the namespace."""
    kept = tables.value(_POLICY, namespace)
    return Retention() if kept is None else _policy.decode(kept)


def set_policy(tables: Tables, namespace: str, policy: Retention) -> None:
    """Set the policy of the namespace."""
    number = namespace_number(tables, namespace)
    content = msgspec.json.encode(policy)
    tables.run("INSERT OR REPLACE INTO retention VALUES (?, ?)", (number, content))


def rewrite_policy(tables: Tables, namespace: str) -> None:
    """Store the same policy again, to test whether the store accepts writes.

    Raises: the error of a store that cannot be written to.
    """
    set_policy(tables, namespace, policy_of(tables, namespace))


def is_due(tables: Tables, namespace: str, policy: Retention, now: int) -> bool:
    """Implement ``RetentionService.is_due``."""
    found = namespace_totals(tables, namespace)
    return (
        is_over(found.sessions, policy.max_sessions)
        or is_over(found.body_bytes, policy.max_bytes)
        or _has_older(tables, namespace, oldest_kept(policy.max_age_s, now))
        or _has_idle(tables, namespace, oldest_kept(policy.max_idle_s, now))
    )


def _has_older(tables: Tables, namespace: str, before: int | None) -> bool:
    return before is not None and tables.value(_HAS_OLDER, namespace, before) is not None


def _has_idle(tables: Tables, namespace: str, before: int | None) -> bool:
    return before is not None and any(
        tables.value(_HAS_IDLE, namespace, origin, status, before) is not None
        for origin in ORIGINS["all"]
        for status in LISTED_STATUSES
    )


def holdings(tables: Tables, namespace: str, now: int) -> list[Holding]:
    """Implement ``RetentionService.holdings``."""
    forks: dict[int, list[StreamId]] = {}
    for origin, fork in tables.rows(_FORKS, namespace):
        forks.setdefault(origin, []).append(StreamId(fork))
    return [
        Holding(
            stream=StreamId(id_),
            created_at=created_at,
            active_at=updated_at,
            entries=entries,
            bytes=size,
            forks=tuple(forks.get(no, ())),
            hold=_hold(tables, no, is_open=bool(is_open), is_led=bool(is_led)),
        )
        for no, id_, created_at, updated_at, entries, is_open, is_led, size in list(
            tables.rows(_HOLDINGS, now, namespace)
        )
    ]


def _hold(tables: Tables, stream: int, *, is_open: bool, is_led: bool) -> Hold | None:
    if is_open or _waits(tables, stream, TurnRequested.kind):
        return "turn"
    if is_led:
        return "lease"
    return "question" if _waits(tables, stream, Question.kind) else None


def _waits(tables: Tables, stream: int, kind: str) -> bool:
    return tables.value(_WAITS, stream, tables.kind_number(kind)) is not None


def holder(tables: Tables, namespace: str, stream: StreamId, now: int) -> Hold | None:
    """Implement ``RetentionService.holder``."""
    return _holder(tables, tables.stream(namespace, stream), now)


def _holder(tables: Tables, stream: Stream, now: int) -> Hold | None:
    if tables.value("SELECT 1 FROM birth WHERE origin = ? LIMIT 1", stream.no) is not None:
        return "forks"
    is_led = stream.owner is not None and is_running(stream.until, now)
    is_open = stream.state.open_turn is not None
    return _hold(tables, stream.no, is_open=is_open, is_led=is_led)


def begin_removal(
    tables: Tables,
    namespace: str,
    request: EraseRequest,
    random: RandomSource,
    *,
    is_erased: bool = False,
    expected_head: int | None = None,
) -> bool:
    """Hide a session and record its removal; return False if the session is protected.

    Raises: SessionNotFound.
    """
    stream = tables.stream(namespace, request.name or "")
    if is_erased and stream.state.info.status != "erased":
        return False
    if expected_head not in (None, stream.state.head):
        return False
    if _holder(tables, stream, request.at) is not None:
        return False
    number = namespace_number(tables, namespace)
    erased = ((0, stream.state.head),) if stream.state.head >= 0 else ()
    plan = plan_of(
        tables, stream, StreamErasure(stream=stream.state.header.id, is_whole=True, erased=erased)
    )
    sessions = mark_streams(tables, namespace, [plan], request, random)
    forgotten(tables, number, [plan])
    certificate = request.certificate("sqlite", namespace, sessions=sessions)
    keep_new(tables, number, certificate, [(stream.no, erased)], is_removal=True)
    return True


def forget_keys(tables: Tables, namespace: str, before: int) -> int:
    """Implement ``RetentionService.forget_keys``."""
    tables.run(
        "DELETE FROM idempotency WHERE at < ?"
        " AND namespace = (SELECT no FROM namespace WHERE name = ?)",
        (before, namespace),
    )
    return int(tables.value("SELECT changes()"))
