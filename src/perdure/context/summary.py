"""Convert a compaction plan to model requests, and the replies to the compaction's text.

There is one request for the history and, if the cut is inside a turn, another request for the start
of that turn. The two are independent. The engine calls the model, rejects unusable replies, and
appends the compaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.context import prompts
from perdure.context.compaction import CompactionPlan
from perdure.context.files import FileLists, with_file_lists, without_file_lists
from perdure.context.transcript import transcript
from perdure.models.protocol import ModelRequest
from perdure.session.messages import Message, user

MIN_SUMMARY_CHARACTERS = 20
PREFIX_SHARE = 0.625
"""Share of the output limit for the start of a split turn."""


def summary_requests(
    plan: CompactionPlan,
    model: str,
    *,
    focus: str | None = None,
    max_output_tokens: int | None = None,
) -> tuple[ModelRequest, ...]:
    """Return the requests to `model` that `plan` needs.

    `focus` names details that the summary must preserve.
    Shape: one or two requests: first for the history, then for the turn prefix. Without history to
    summarize there is no request for it: the previous summary stays unchanged.
    """
    requests: list[ModelRequest] = []
    if plan.history:
        text = _history_prompt(plan, focus)
        requests.append(summary_request(model, text, max_output_tokens))
    if plan.turn_prefix:
        text = _prompt(plan.turn_prefix, prompts.SUMMARY_TURN_PREFIX, focus)
        limit = max_output_tokens and max(1, int(max_output_tokens * PREFIX_SHARE))
        requests.append(summary_request(model, text, limit))
    return tuple(requests)


def summary_request(model: str, text: str, max_output_tokens: int | None) -> ModelRequest:
    """Return a request for a summary, whose prompt is `text`."""
    return ModelRequest(
        model=model,
        messages=(user(text),),
        system=prompts.SUMMARY_SYSTEM,
        max_output_tokens=max_output_tokens,
    )


def _history_prompt(plan: CompactionPlan, focus: str | None) -> str:
    if plan.previous_summary is None:
        return _prompt(plan.history, prompts.SUMMARY_NEW, focus)
    previous = without_file_lists(plan.previous_summary)
    return _prompt(plan.history, prompts.SUMMARY_UPDATE, focus, previous)


def _prompt(
    messages: Sequence[Message], instructions: str, focus: str | None, previous: str | None = None
) -> str:
    blocks = [prompts.wrap_in_tag("conversation", transcript(messages))]
    if previous:
        blocks.append(prompts.wrap_in_tag("previous-summary", previous))
    blocks.append(instructions)
    if focus and focus.strip():
        blocks.append(prompts.FOCUS + focus.strip())
    return "\n\n".join(blocks)


def summary_text(plan: CompactionPlan, replies: Sequence[str]) -> str:
    """Return the summary from `replies`, one per request of `summary_requests`.

    Shape: the history's summary; then, for a split turn, ``---``, a heading and the summary of its
    start; then the lists of files.
    Raises: ValueError if the number of replies differs from the number of requests.
    """
    wanted = bool(plan.history) + bool(plan.turn_prefix)
    if len(replies) != wanted:
        raise ValueError(f"{wanted} replies are needed for this plan, not {len(replies)}")
    left = [reply.strip() for reply in replies]
    history = left.pop(0) if plan.history else without_file_lists(plan.previous_summary or "")
    parts = [history] if history else []
    if plan.turn_prefix:
        parts.append(f"{prompts.TURN_HEADING}\n\n{left.pop(0)}")
    files = FileLists(plan.read_files, plan.modified_files)
    return with_file_lists("\n\n---\n\n".join(parts), files)


def is_usable_summary(text: str) -> bool:
    """Return True if `text`, a single reply, can replace the summarized messages.

    The text must have at least `MIN_SUMMARY_CHARACTERS`, without white space and lists of files. A
    shorter summary would remove the conversation from the context without a replacement.
    """
    return len("".join(without_file_lists(text).split())) >= MIN_SUMMARY_CHARACTERS
