"""A compaction plan as requests to a model, and the replies as the text of the compaction.

One request for the history and, where the cut falls inside a turn, one for the beginning of that
turn; they do not depend on each other. The engine calls the model, rejects replies that are not
usable, and appends the compaction.
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
"""How much of the output limit the beginning of a split turn gets."""


def summary_requests(
    plan: CompactionPlan,
    model: str,
    *,
    focus: str | None = None,
    max_output_tokens: int | None = None,
) -> tuple[ModelRequest, ...]:
    """What to ask `model` so that `plan` can be carried out.

    `focus` is what the person wants the summary to keep in particular.
    Shape: one or two requests, the history's before the turn prefix's. No history to summarise
    means no request for it: the previous summary then stays as it is.
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
    """A request for a summary, whose prompt is `text`."""
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
    """The summary that `replies`, one per request of `summary_requests`, amount to.

    Shape: the history's summary; then, where a turn is split, ``---``, a heading and the summary of
    its beginning; then the lists of files.
    Raises: ValueError when the number of replies is not the number of requests.
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
    """Whether `text`, one reply, can stand for what it summarises; judge each reply by itself.

    It must have `MIN_SUMMARY_CHARACTERS` beside blanks and lists of files. A compaction with less
    would throw the conversation out of the context and put nothing in its place.
    """
    return len("".join(without_file_lists(text).split())) >= MIN_SUMMARY_CHARACTERS
