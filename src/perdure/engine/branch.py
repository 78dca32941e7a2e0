"""Branch summaries: the entries of an abandoned branch and the model call that summarizes them."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.context.branch_summary import branch_summary_request
from perdure.context.summary import is_usable_summary
from perdure.engine.turns.config import TurnConfig
from perdure.engine.turns.environment import Environment
from perdure.engine.turns.executor.model_call import client_call, streaming
from perdure.errors import MalformedResponse
from perdure.models.protocol import ModelRequest
from perdure.models.stream import AnswerBuilder
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.messages import Message
from perdure.stores.protocol import LogReader

BRANCH_TOKENS = 32_000
"""Token limit of a branch shown for its summary if the model's context window is unknown."""


async def entries_left(
    log: LogReader, stream: StreamId, leaf: EntryId | None, target: EntryId | None
) -> list[Entry]:
    """Return the entries of the branch to `leaf` that the branch to `target` lacks, in order."""
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

    Raises: ModelError, also if the answer is too short for a summary.
    """

    async def answered() -> Message:
        builder = AnswerBuilder(request.model)
        async with streaming(environment, request) as deltas:
            async for delta in deltas:
                builder.add(delta)
        return builder.build()

    reply = await client_call(request.model, answered())
    if not is_usable_summary(reply.text):
        raise MalformedResponse(request.model, "the summary is too short for a branch")
    return reply
