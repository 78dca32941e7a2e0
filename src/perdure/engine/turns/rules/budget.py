"""Check the budget before a model call, and count the usage that a provider did not report.

`intend` writes every ``model_called`` of a turn, so no model call and no retry bypasses the budget.
The budget check uses the maximum cost of a model call: its whole request, and the longest allowed
answer.
"""

from __future__ import annotations

import math

import msgspec

from perdure.context.summary import MOST_PARTS
from perdure.context.tokens import estimate_tokens
from perdure.engine.turns import inputs
from perdure.engine.turns.config import OUTPUT_TOKENS, TurnConfig
from perdure.engine.turns.rules.questions import ask_to_spend
from perdure.engine.turns.rules.scribe import Scribe
from perdure.engine.turns.rules.turn_end import finish
from perdure.errors import SummaryOverBudget
from perdure.models.prices import in_dollars
from perdure.session.ledger import BudgetNoted, ModelCalled, Spending
from perdure.session.messages import Message, TextPart, Usage

SummaryOutcome = inputs.Summarised | inputs.NothingToSummarise | inputs.CallFailed
"""The possible outcomes of a summary call."""


class Overrun(msgspec.Struct, frozen=True):
    """A model call that could exceed the limit of the budget.

    Units: the amounts are micro-cents; `estimate` is None if the cost is unknown.
    """

    limit: int
    estimate: int | None


def overrun_of(
    called: ModelCalled,
    config: TurnConfig,
    spent: Spending,
    granted_microcents: int | None = None,
) -> Overrun | None:
    """Return how the call `called` could exceed the budget; None if its estimate is within it."""
    if not config.budget.max_cost_microcents:
        return None
    limit = max(config.budget.max_cost_microcents, granted_microcents or 0)
    usage = Usage(called.tokens_estimated or 0, config.max_output_tokens or OUTPUT_TOKENS)
    if called.purpose == "summary":
        usage = _summary_usage(called, config)
    estimate = config.cost(called.model, usage)
    if estimate is not None and spent.cost_microcents + estimate <= limit:
        return None
    return Overrun(limit, estimate)


def _summary_usage(called: ModelCalled, config: TurnConfig) -> Usage:
    """Return the maximum usage of the summary call `called`, even if it is written in parts.

    Each part except the first also quotes the summary of the earlier parts. If the provider's
    window is smaller than expected, the summary can use more than the returned maximum;
    `require_affordable` stops a summary that becomes too expensive.
    """
    tokens, window, calls = called.tokens_estimated or 0, config.window_tokens, 1
    is_of_branch = called.call == 0 and called.reason is None  # always one request
    if window is None:
        calls = 1 if is_of_branch else MOST_PARTS
    elif tokens > window:
        calls = min(MOST_PARTS, 2 * math.ceil(tokens / window))
    written = calls * config.compaction.summary_tokens
    return Usage(tokens + written - config.compaction.summary_tokens, written)


def money_left(
    config: TurnConfig, spent: Spending, granted_microcents: int | None = None
) -> int | None:
    """Return the amount that the budget still allows; None if the budget does not stop calls.

    Units: the amount is micro-cents.
    """
    if not config.budget.max_cost_microcents or config.budget.on_exceed == "warn":
        return None
    limit = max(config.budget.max_cost_microcents, granted_microcents or 0)
    return limit - spent.cost_microcents


def require_affordable(
    config: TurnConfig, tokens: int, output_tokens: int, used: int, left: int
) -> None:
    """Raise SummaryOverBudget if the next request of a summary could cost more than is left.

    Units: `used` and `left` are micro-cents and do not include this request; `tokens` is the size
    of the request.
    """
    cost = config.cost(config.model, Usage(tokens, output_tokens))
    if cost is not None and used + cost > left:
        raise SummaryOverBudget(config.model, in_dollars(used), in_dollars(left))


def intend(scribe: Scribe, called: ModelCalled, config: TurnConfig) -> None:
    """Write the intent of a model call; apply ``on_exceed`` if the call could exceed the budget."""
    state = scribe.state
    overrun = overrun_of(called, config, state.spent, state.limit_microcents)
    is_known = overrun is not None and overrun.estimate is not None
    if overrun is None or (not is_known and called.model in state.unpriced_allowed):
        scribe.side(called, state.turn_seq)
    elif config.budget.on_exceed == "warn":
        _warn_once(scribe, called.model, overrun)
        scribe.side(called, state.turn_seq)
    elif config.budget.on_exceed == "fail":
        text = overrun_text(called.model, state.spent, overrun)
        finish(scribe, "error", failure="budget_exceeded", error=text)
    else:
        step = config.budget.max_cost_microcents
        ask_to_spend(scribe, called.model, overrun.limit, overrun.estimate, step)


def _warn_once(scribe: Scribe, model: str, overrun: Overrun) -> None:
    if scribe.state.is_warned:
        return
    spent = scribe.state.spent.cost_microcents
    noted = BudgetNoted(model, spent, overrun.limit, overrun.estimate)
    scribe.side(noted, scribe.state.turn_seq)


def overrun_text(model: str, spent: Spending, overrun: Overrun) -> str:
    """Return the text that tells a person why a call was not made."""
    limit = in_dollars(overrun.limit)
    if overrun.estimate is None:
        return (
            f"the price of {model} is unknown, so the session's limit of {limit} cannot be kept; "
            "give the Runtime a price for it, or take the limit away"
        )
    return (
        f"the next call of {model} may cost up to {in_dollars(overrun.estimate)} (its whole "
        f"request and the longest allowed answer) and the session has spent "
        f"{in_dollars(spent.cost_microcents)} of {limit}; raise max_cost_microcents"
    )


def estimated_usage(
    model: str, input_tokens: int | None, partial: Message | None, config: TurnConfig
) -> Usage | None:
    """Estimate the usage of a call from the sizes of its request and its answer.

    Shape: the result is None if the sizes of both the request and the answer are unknown.
    """
    output_tokens = 0 if partial is None else estimate_tokens(partial)
    if not input_tokens and not output_tokens:
        return None
    usage = Usage(input_tokens or 0, output_tokens)
    return msgspec.structs.replace(usage, cost_microcents=config.cost(model, usage))


def answer_usage(
    model: str, tokens: int | None, answer: Message, config: TurnConfig
) -> tuple[Usage | None, bool]:
    """Return the usage of the model call that returned `answer`, and whether it is estimated.

    `tokens` is the estimated size of the request.
    """
    if answer.usage is None:
        return estimated_usage(model, tokens, answer, config), True
    cost = config.cost(model, answer.usage)
    return msgspec.structs.replace(answer.usage, cost_microcents=cost), False


def summary_counted(
    outcome: SummaryOutcome, model: str, tokens: int | None, config: TurnConfig
) -> SummaryOutcome:
    """Return `outcome`, with the price of the summary call added to its usage.

    If the provider reported no usage, the usage is estimated. `tokens` is the estimated size of the
    request.
    """
    if isinstance(outcome, inputs.NothingToSummarise):
        return outcome
    if isinstance(outcome, inputs.Summarised) and outcome.compaction.reason == "hook":
        return outcome  # no model was called
    usage, is_estimated = outcome.usage, False
    if usage is None and isinstance(outcome, inputs.Summarised):
        said = Message("assistant", (TextPart(outcome.compaction.summary),))
        usage, is_estimated = estimated_usage(model, tokens, said, config), True
    elif usage is not None:
        usage = msgspec.structs.replace(usage, cost_microcents=config.cost(model, usage))
    return msgspec.structs.replace(outcome, usage=usage, is_estimated=is_estimated)
