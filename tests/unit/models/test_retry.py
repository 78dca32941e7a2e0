"""When to retry a failed model call."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import (
    ContextOverflow,
    MalformedResponse,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
)
from perdure.models.retry import RetryPolicy, next_wait

STEADY = RetryPolicy(jitter=0)
UNAVAILABLE = ModelUnavailable("m", "gone")


def test_default_retry_policy_waits_two_then_four_seconds() -> None:
    waits = [next_wait(RetryPolicy(), attempt, UNAVAILABLE, 0.5) for attempt in (1, 2, 3, 4)]
    assert waits == [2.0, 4.0, None, None]


def test_retry_delays_stop_growing_at_the_cap() -> None:
    policy = RetryPolicy(max_attempts=10_000, jitter=0)
    waits = [next_wait(policy, attempt, UNAVAILABLE, 0.5) for attempt in (5, 6, 7, 9_999)]
    assert waits == [32.0, 60.0, 60.0, 60.0]


@pytest.mark.parametrize(
    ("error", "is_tried_again"),
    [
        (UNAVAILABLE, True),
        (RateLimited("m", "slow"), True),
        (MalformedResponse("m", "?"), True),
        (ContextOverflow("m", "big"), False),
        (ModelRefused("m", "no", 401), False),
    ],
)
def test_error_class_decides_whether_to_retry(error: ModelError, is_tried_again: bool) -> None:
    assert (next_wait(STEADY, 1, error, 0.5) is not None) == is_tried_again


@pytest.mark.parametrize(
    ("asked_s", "wait_s"),
    [(None, 2.0), (0.5, 2.0), (7.0, 7.0), (60.0, 60.0), (60.1, None), (3600.0, None)],
)
def test_retry_waits_for_the_requested_delay(asked_s: float | None, wait_s: float | None) -> None:
    assert next_wait(STEADY, 1, RateLimited("m", "slow", asked_s), 0.5) == wait_s


@given(st.integers(1, 9), st.floats(0, 1))
def test_jitter_changes_the_retry_delay_by_at_most_20_percent(
    attempt: int, random01: float
) -> None:
    policy = RetryPolicy(max_attempts=10)
    steady = next_wait(RetryPolicy(max_attempts=10, jitter=0), attempt, UNAVAILABLE, 0.5)
    wait = next_wait(policy, attempt, UNAVAILABLE, random01)
    assert wait is not None
    assert steady is not None
    assert 0.8 * steady - 1e-9 <= wait <= min(1.2 * steady, policy.cap_s) + 1e-9


@given(st.floats(0, 1), st.floats(0, 60))
def test_jitter_does_not_shorten_the_requested_retry_delay(random01: float, asked_s: float) -> None:
    wait = next_wait(RetryPolicy(), 1, RateLimited("m", "slow", asked_s), random01)
    assert wait is not None
    assert wait >= asked_s


def test_retry_delays_without_jitter_never_shrink() -> None:
    policy = RetryPolicy(max_attempts=20, jitter=0)
    waits = [next_wait(policy, attempt, UNAVAILABLE, 0.5) or 0 for attempt in range(1, 20)]
    assert all(earlier <= later for earlier, later in itertools.pairwise(waits))


@pytest.mark.parametrize(
    "wrong",
    [{"max_attempts": 0}, {"first_wait_s": -1}, {"factor": 0.5}, {"jitter": 1.1}, {"cap_s": -1}],
)
def test_invalid_retry_policy_is_rejected(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"."):
        RetryPolicy(**wrong)  # pyright: ignore[reportArgumentType] - wrong on purpose


def test_retry_delays_can_grow_by_a_constant_amount() -> None:
    policy = RetryPolicy(max_attempts=9, first_wait_s=1, cap_s=3, jitter=0, growth="linear")
    assert [next_wait(policy, n, UNAVAILABLE, 0.5) for n in (1, 2, 3, 4)] == [1.0, 2.0, 3.0, 3.0]
