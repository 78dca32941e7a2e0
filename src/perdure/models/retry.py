"""Decide whether and when to retry a failed model call. Pure: randomness is an argument."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from perdure.bounds.short_repr import ShortRepr
from perdure.errors import ModelError, RateLimited
from perdure.session.argument_checks import NamedParameters, check_fields


class RetryPolicy(ShortRepr, frozen=True, metaclass=NamedParameters):
    """The maximum number of calls for one answer, and how the waits between the calls grow.

    Units: `first_wait_s` and `cap_s` are seconds. `max_attempts` includes the first call. `jitter`
    is the fraction by which a wait can be shorter or longer, so that processes do not retry at the
    same moment. Each wait is the previous wait times `factor`, or, if `growth` is "linear", the
    previous wait plus the first wait.
    """

    max_attempts: Annotated[int, Meta(ge=1)] = 3
    first_wait_s: Annotated[float, Meta(ge=0)] = 2.0
    factor: Annotated[float, Meta(ge=1)] = 2.0
    cap_s: Annotated[float, Meta(ge=0)] = 60.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.2
    growth: Literal["exponential", "linear"] = "exponential"

    def __post_init__(self) -> None:
        check_fields(self)


def next_wait(
    policy: RetryPolicy, attempt: int, error: ModelError, random01: float
) -> float | None:
    """Return the seconds to wait after `error` ended attempt `attempt` (from 1); None to give up.

    A wait is never shorter than the provider requested. If the provider requested a longer wait
    than `cap_s`, the function returns None, because a retry after `cap_s` would fail again.
    `random01` is a random number from 0 to 1.
    """
    if not error.retryable or attempt >= policy.max_attempts:
        return None
    wait_s = _backoff_s(policy, attempt) * (1 + policy.jitter * (2 * random01 - 1))
    wait_s = min(wait_s, policy.cap_s)
    asked_s = error.retry_after_s if isinstance(error, RateLimited) else None
    if asked_s is None:
        return wait_s
    return None if asked_s > policy.cap_s else max(wait_s, asked_s)


def _backoff_s(policy: RetryPolicy, attempt: int) -> float:
    wait_s = policy.first_wait_s
    if policy.growth == "linear":
        return min(wait_s * attempt, policy.cap_s)
    for _ in range(attempt - 1):
        if wait_s >= policy.cap_s:
            return policy.cap_s
        wait_s *= policy.factor
    return min(wait_s, policy.cap_s)
