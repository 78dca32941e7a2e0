"""The sessions that expire under a policy."""

from __future__ import annotations

import msgspec

from perdure.session.ids import StreamId
from perdure.stores.retention.policy import Hold, Holding, Retention, expiring

NOW = 1_000_000


def held(
    name: str, age_s: int, size: int = 10, *, forks: tuple[str, ...] = (), hold: Hold | None = None
) -> Holding:
    """Return a session that was created and last active `age_s` seconds ago."""
    at = NOW - age_s * 1000
    return Holding(
        stream=StreamId(name),
        created_at=at,
        active_at=at,
        entries=1,
        bytes=size,
        forks=tuple(map(StreamId, forks)),
        hold=hold,
    )


def going(policy: Retention, *holdings: Holding) -> list[tuple[str, str]]:
    return [(each.stream, each.why) for each in expiring(holdings, policy, NOW).expiring]


def test_retention_policy_without_limits_expires_no_session() -> None:
    assert going(Retention(), held("a", 10**6)) == []


def test_age_and_idle_time_are_measured_from_different_start_times() -> None:
    young = Holding(stream=StreamId("b"), created_at=0, active_at=NOW - 1_000, entries=1, bytes=1)
    assert going(Retention(max_idle_s=60), held("a", 61), held("c", 60), young) == [("a", "idle")]
    assert going(Retention(max_age_s=60), held("c", 60), young) == [("b", "age")]


def test_session_limit_keeps_newest_sessions() -> None:
    sessions = [held(name, age) for name, age in (("a", 30), ("b", 10), ("c", 20))]
    assert going(Retention(max_sessions=1), *sessions) == [("a", "count"), ("c", "count")]
    assert going(Retention(max_sessions=3), *sessions) == []


def test_byte_limit_expires_oldest_sessions_first() -> None:
    sessions = [held("a", 30, 5), held("b", 20, 50), held("c", 10, 40)]
    assert going(Retention(max_bytes=90), *sessions) == [("a", "bytes")]
    assert going(Retention(max_bytes=89), *sessions) == [("a", "bytes"), ("b", "bytes")]


def test_session_expired_by_age_does_not_count_in_other_limits() -> None:
    old = Holding(stream=StreamId("a"), created_at=0, active_at=NOW, entries=1, bytes=10)
    others = [held("b", 20), held("c", 10)]
    for more in (Retention(max_sessions=2), Retention(max_bytes=20)):
        policy = msgspec.structs.replace(more, max_age_s=60)
        assert going(policy, old, *others) == [("a", "age")]


def test_session_with_an_active_fork_does_not_expire() -> None:
    policy = Retention(max_idle_s=60)
    origin, fork = held("a", 99, forks=("f",)), held("f", 98)
    assert going(policy, origin, fork) == [("f", "idle"), ("a", "idle")]

    plan = expiring([origin, held("f", 1)], policy, NOW)
    assert plan.expiring == ()
    assert [(each.stream, each.hold) for each in plan.held] == [("a", "forks")]


def test_protected_session_is_listed_and_not_deleted() -> None:
    plan = expiring([held("a", 99, hold="turn")], Retention(max_age_s=1), NOW)
    assert plan.expiring == ()
    assert [(each.stream, each.why, each.hold) for each in plan.held] == [("a", "age", "turn")]
