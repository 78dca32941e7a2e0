"""Summarize the context or an abandoned branch, on request between two turns.

Each summary is one model call under a lease of its own. The intent and outcome of this model call
are logged like the intents and outcomes of a turn.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.context.branch_summary import branch_files, branch_summary_request, branch_summary_text
from perdure.context.incremental.conversation import conversation_of
from perdure.context.tokens import estimate_request
from perdure.engine.switches import Switches
from perdure.engine.turns.config import TurnConfig
from perdure.engine.turns.environment import Environment
from perdure.engine.turns.executor.model_call import client_call, whole_answer
from perdure.engine.turns.executor.summary import require_usable, summarise, tell_compacted
from perdure.engine.turns.inputs import CallFailed, NothingToSummarise, Summarised
from perdure.engine.turns.lease import LeaseHolder, leading
from perdure.engine.turns.recovery import idle_state, spent_in
from perdure.engine.turns.rules.budget import (
    SummaryOutcome,
    answer_usage,
    money_left,
    overrun_of,
    overrun_text,
    summary_counted,
)
from perdure.engine.turns.rules.outcomes import FAILURES
from perdure.engine.turns.session_turns import Terms
from perdure.engine.windows import pinned_window
from perdure.errors import HeadConflict, ModelError, TurnFailed
from perdure.errors.engine import failure_of
from perdure.models.protocol import ModelRequest
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import Entry, NewEntry
from perdure.session.fold import ContextWindow
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import BranchSummary
from perdure.session.ledger import CompactingReason, ModelCalled, ModelFinished, Spending
from perdure.session.messages import Message
from perdure.session.notes import SessionReopened
from perdure.stores.protocol import Commit, Lease, LogReader, StreamState, Write


async def compact(
    environment: Environment,
    terms: Terms,
    focus: str | None,
    model: str | None = None,
    *,
    expected_head: int | None = None,
) -> Entry | None:
    """Summarize the messages that can now leave the context; return None if there are none.

    `model` is the model that writes this summary; if it is None, the session's model writes it.
    With `expected_head`, the model is called only if the session's head is still `expected_head` at
    the first commit.
    Raises: LeaseHeld if another process runs a turn; TurnOpen if a turn is open; HeadConflict if
    another writer appended first; TurnFailed if the model returned no usable summary.
    """
    async with leading(environment.claim) as leadership:
        state = await _ready(environment, leadership, expected_head)
        window = await _window(environment, state)
        if state.head != expected_head:
            expected_head = None  # the commit that reopened the session has checked it
        switched = await Switches(environment.store).in_force(window.state)
        config = terms.config_on(switched) if model is None else terms.config_of(model)
        tokens = terms.tokens_of(conversation_of(window, terms.history), environment.scales)
        intent, spent = await _record_intent(
            environment, leadership, config, tokens, "manual", expected_head=expected_head
        )
        shared = (environment, config, "manual", terms.settings.size, focus)
        outcome = await summarise(*shared, left_microcents=money_left(config, spent))
        outcome = summary_counted(outcome, config.model, tokens, config)
        closing = _closing(outcome, config, spent)
        added = [new_tree(outcome.compaction)] if isinstance(outcome, Summarised) else []
        appended = await _append(
            environment, leadership.lease, *added, new_side(closing, intent.id)
        )
    if isinstance(outcome, CallFailed):
        raise _failed(outcome.error) from outcome.error
    await tell_compacted(environment, outcome)
    return appended[0] if added else None


async def summarise_branch(
    environment: Environment, terms: Terms, target: EntryId | None, focus: str | None
) -> BranchSummary | None:
    """Summarize the branch that a move to `target` leaves; None if the branch has no messages.

    Raises: LeaseHeld if another process runs a turn; TurnOpen if a turn is open; TurnFailed if the
    model returned no usable summary.
    """
    async with leading(environment.claim) as leadership:
        state = await _ready(environment, leadership)
        branch = (await _window(environment, state)).state
        config = terms.config_on(await Switches(environment.store).in_force(branch))
        entries = await entries_left(environment.store, environment.stream, state.leaf, target)
        request = branch_request(environment, entries, config, focus)
        if request is None:
            return None
        tokens = estimate_request(request)
        intent, spent = await _record_intent(environment, leadership, config, tokens)
        try:
            reply = await branch_told(environment, request)
        except ModelError as error:
            closing = _closing(CallFailed(error), config, spent)
            await _append(environment, leadership.lease, new_side(closing, intent.id))
            raise _failed(error) from error
        usage, is_estimated = answer_usage(config.model, tokens, reply, config)
        after = spent.plus(usage)
        closing = ModelFinished(
            "stop",
            usage,
            model=config.model,
            is_estimated=is_estimated,
            spent=after,
            agent=config.agent,
        )
        await _append(environment, leadership.lease, new_side(closing, intent.id))
    files = branch_files(entries)
    text = branch_summary_text(entries, reply.text)
    return BranchSummary(text, target, tuple(files.read), tuple(files.modified), usage)


def _failed(error: ModelError) -> TurnFailed:
    return TurnFailed(str(error), failure_of(FAILURES.get(error.code, error.code), "internal"))


# ---------------------------------------------------------------- the log


async def _ready(
    environment: Environment, leadership: LeaseHolder, expected_head: int | None = None
) -> StreamState:
    """Return the session's state for a summary, after reopening the session if it had ended.

    Raises: HeadConflict if the head is not `expected_head`.
    """
    state = await idle_state(environment.store, environment.stream)
    if expected_head is not None and expected_head != state.head:
        raise HeadConflict(environment.stream, expected_head, state.head)
    if state.info.status == "active":
        return state
    reopened = new_side(SessionReopened())
    await _append(environment, leadership.lease, reopened, expected_head=expected_head)
    return await environment.store.state(environment.stream)


async def _record_intent(
    environment: Environment,
    leadership: LeaseHolder,
    config: TurnConfig,
    tokens: int,
    reason: CompactingReason | None = None,
    *,
    expected_head: int | None = None,
) -> tuple[Entry, Spending]:
    """Log the intent of a summary call; return the intent, and the amount spent before the call.

    Raises: TurnFailed if the call could exceed the session's budget.
    """
    spent = await spent_in(environment.store, environment.stream)
    called = ModelCalled(
        0,
        config.model,
        purpose="summary",
        tokens_estimated=tokens,
        agent=config.agent,
        reason=reason,
    )
    overrun = overrun_of(called, config, spent)
    if overrun is not None and config.budget.on_exceed != "warn":
        raise TurnFailed(overrun_text(config.model, spent, overrun), "budget_exceeded")
    noted = await _append(
        environment, leadership.lease, new_side(called), expected_head=expected_head
    )
    return noted[0], spent


async def _append(
    environment: Environment, lease: Lease, *entries: NewEntry, expected_head: int | None = None
) -> tuple[Entry, ...]:
    """Append at the current head, or at `expected_head` if it is given.

    The write always expects a head, because the store marks all entries of a write as this user's
    own only if the write expects a head.
    Raises: HeadConflict if `expected_head` is given and is not the head.
    """
    while True:
        head = expected_head
        if head is None:
            head = (await environment.store.state(environment.stream)).head
        write = Write(stream=environment.stream, entries=entries, lease=lease, expected_head=head)
        try:
            commit = Commit(writes=(write,), at=environment.clock.now_ms())
            return (await environment.store.commit(commit)).entries[0]
        except HeadConflict:
            if expected_head is not None:
                raise


async def _window(environment: Environment, state: StreamState) -> ContextWindow:
    return await pinned_window(environment.store, environment.stream, state.leaf)


def _closing(outcome: SummaryOutcome, config: TurnConfig, spent: Spending) -> ModelFinished:
    if isinstance(outcome, NothingToSummarise):
        reason = "nothing can leave the context"
        closing = ModelFinished(error=reason, error_code="nothing_to_compact")
    elif isinstance(outcome, Summarised):
        closing = ModelFinished("stop", outcome.usage, is_estimated=outcome.is_estimated)
    else:
        closing = ModelFinished(
            usage=outcome.usage,
            error=outcome.error.reason,
            error_code=outcome.error.code,
            is_estimated=outcome.is_estimated,
        )
    after = None if isinstance(outcome, NothingToSummarise) else spent.plus(outcome.usage)
    return msgspec.structs.replace(closing, model=config.model, spent=after, agent=config.agent)


BRANCH_TOKENS = 32_000
"""Maximum tokens of a branch in a summary request if the model's context window is unknown."""


async def entries_left(
    log: LogReader, stream: StreamId, leaf: EntryId | None, target: EntryId | None
) -> list[Entry]:
    """Return the entries of the branch to `leaf` that are not on the branch to `target`."""
    kept = {entry.id for entry in await log.branch(stream, target)}
    return [entry for entry in await log.branch(stream, leaf) if entry.id not in kept]


def branch_request(
    environment: Environment, entries: Sequence[Entry], config: TurnConfig, focus: str | None
) -> ModelRequest | None:
    """Build the request for a summary of `entries`; None if they contain no messages."""
    scale = environment.scales.of(config.model)
    budget = BRANCH_TOKENS if config.window_tokens is None else config.window_tokens // 2
    return branch_summary_request(
        entries, config.model, budget_tokens=budget, scale=scale, focus=focus
    )


async def branch_told(environment: Environment, request: ModelRequest) -> Message:
    """Return the model's answer to `request`, which asks for the summary of a branch.

    Raises: ModelError if the call failed; SummaryTooShort if the answer is too short.
    """
    reply = await client_call(request.model, whole_answer(environment, request))
    require_usable(request.model, reply.text)
    return reply
