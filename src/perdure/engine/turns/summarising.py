"""Calling the model for a summary, and what the compaction then holds."""

from __future__ import annotations

from perdure.context.compaction import CompactionPlan, plan_compaction
from perdure.context.summary import is_usable_summary, summary_requests, summary_text
from perdure.context.tokens import estimate_tokens
from perdure.engine.turns.calling import streaming
from perdure.engine.turns.config import CompactionSettings
from perdure.engine.turns.environment import Environment
from perdure.engine.turns.inputs import CallFailed, NothingToSummarise, Summarised
from perdure.errors import MalformedResponse, ModelError
from perdure.models.protocol import ModelRequest
from perdure.models.stream import AnswerBuilder
from perdure.session.fold import ContextWindow
from perdure.session.kinds import Compaction, CompactionReason
from perdure.session.messages import Message, Usage, user


async def summarised(
    environment: Environment,
    model: str,
    settings: CompactionSettings,
    reason: CompactionReason,
    focus: str | None = None,
) -> Summarised | NothingToSummarise | CallFailed:
    """Have the model summarise what can leave the context of the session's branch.

    A summary too short to be one counts as a failed call: the context is then left as it is.
    """
    state = await environment.store.state(environment.stream)
    window = await environment.store.context_window(environment.stream, state.leaf)
    plan = plan_compaction(window, keep_recent_tokens=settings.keep_recent_tokens)
    if plan is None:
        return NothingToSummarise()
    try:
        replies = [
            await _answer(environment, request)
            for request in summary_requests(plan, model, focus=focus)
        ]
    except ModelError as error:
        return CallFailed(error, None, environment.random01())
    if not all(is_usable_summary(reply.text) for reply in replies):
        error = MalformedResponse(model, "the summary is too short to stand for what it replaces")
        return CallFailed(error, None, environment.random01())
    return Summarised(_compaction(plan, window, replies, reason), _usage_of(replies))


async def _answer(environment: Environment, request: ModelRequest) -> Message:
    builder = AnswerBuilder(request.model)
    async with streaming(environment, request) as deltas:
        async for delta in deltas:
            builder.add(delta)
    return builder.finished()


def _compaction(
    plan: CompactionPlan, window: ContextWindow, replies: list[Message], reason: CompactionReason
) -> Compaction:
    summary = summary_text(plan, [reply.text for reply in replies])
    return Compaction(
        summary=summary,
        first_kept=plan.first_kept,
        tokens_before=plan.tokens_before,
        tokens_after=estimate_tokens(user(summary)) + _kept_tokens(plan, window),
        reason=reason,
        read_files=tuple(plan.read_files),
        modified_files=tuple(plan.modified_files),
        usage=_usage_of(replies),
    )


def _kept_tokens(plan: CompactionPlan, window: ContextWindow) -> int:
    is_kept = False
    tokens = 0
    for entry in window.entries:
        is_kept = is_kept or entry.id == plan.first_kept
        if is_kept and (message := entry.message) is not None:
            tokens += estimate_tokens(message)
    return tokens


def _usage_of(replies: list[Message]) -> Usage | None:
    known = [reply.usage for reply in replies if reply.usage is not None]
    return sum(known[1:], known[0]) if known else None
