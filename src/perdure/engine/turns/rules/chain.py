"""Select the model for the next attempt: the same model, another model of the chain, or none.

The choice of the next model depends on the class of the error, never on its text. If a call fails
after a part of the answer has arrived, the turn ends, or, if the agent sets ``restart_on_cut``, the
answer is requested again. A provider that limits the rate is paused for a while. Models of paused
providers, and models whose window is too small for the context, are skipped without an attempt.
"""

from __future__ import annotations

import msgspec

from perdure.engine.turns import inputs
from perdure.engine.turns.config import PARK_MS, TurnConfig
from perdure.engine.turns.state import OpenCall, TurnState, provider_of
from perdure.errors import CredentialsRefused, MediaMissing, ModelError, RateLimited
from perdure.models.retry import next_wait


class Again(msgspec.Struct, frozen=True):
    """Retry the same model. Units: `wait_s` is the time to wait from now, in seconds."""

    wait_s: float


class Advance(msgspec.Struct, frozen=True):
    """Call another model of the chain at once; `link` is its index."""

    link: int


class GiveUp(msgspec.Struct, frozen=True):
    """No other model of the chain can help."""


Course = Again | Advance | GiveUp


def next_link(state: TurnState, config: TurnConfig, at: int, after: int = -1) -> int | None:
    """Return the index of the first model after index `after` that can be called now, or None.

    If an agent has only one model, the model is always called, because there is no alternative.
    """
    chain = config.chain
    if len(chain) == 1:
        return 0 if after < 0 else None
    for number in range(after + 1, len(chain)):
        link = chain[number]
        is_parked = state.parked.get(provider_of(link.model), 0) > at
        window, needed = link.window_tokens, state.context_tokens
        # Compaction can fit the context to the first model; the others take it as it is.
        is_too_small = number > 0 and bool(window and needed and needed > window)
        if not is_parked and not is_too_small:
            return number
    return None


def parked_until(error: ModelError, config: TurnConfig, at: int) -> int | None:
    """Return when the provider's pause after `error` ends; None if `error` causes no pause.

    Units: the result is Unix milliseconds.
    """
    if not isinstance(error, RateLimited) or len(config.chain) == 1:
        return None
    return at + max(PARK_MS, round((error.retry_after_s or 0) * 1000))


def course_after(
    state: TurnState, call: OpenCall, failed: inputs.CallFailed, config: TurnConfig, at: int
) -> Course:
    """Return how the turn continues after `call` has failed with `failed`."""
    error = failed.error
    is_answer = call.purpose == "answer"
    if isinstance(error, CredentialsRefused) and failed.is_renewed and not failed.has_begun:
        return Again(0.0)
    if isinstance(error, MediaMissing):
        onward = next_link(state, config, at, call.link)
        return GiveUp() if onward is None else Advance(onward)
    if not error.retryable or (failed.has_begun and is_answer and not config.restart_on_cut):
        return GiveUp()
    parked = parked_until(error, config, at)
    if parked is not None:
        left_alone = {**state.parked, provider_of(call.model): parked}
        state = msgspec.structs.replace(state, parked=left_alone)
    onward = next_link(state, config, at, call.link) if is_answer else None
    wait_s = next_wait(config.link(call.link).retry, call.tries, error, failed.random01)
    is_left = parked is not None or (failed.has_begun and onward is not None)
    if wait_s is not None and not is_left:
        return Again(wait_s)
    return GiveUp() if onward is None else Advance(onward)


def passed_over(state: TurnState, config: TurnConfig, at: int) -> str:
    """Return a text that explains why no model of the chain can be called."""
    reasons: list[str] = []
    for link in config.chain:
        until = state.parked.get(provider_of(link.model), 0)
        if until > at:
            seconds = -(-(until - at) // 1000)
            reasons.append(f"{link.model} limits the rate (left alone for {seconds} s)")
        else:
            reasons.append(f"{link.model} has too small a window")
    return f"no model of the chain can be called now: {'; '.join(reasons)}"
