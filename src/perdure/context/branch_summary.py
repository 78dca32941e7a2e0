"""Summarize an abandoned branch: make the request for the summary, and its text.

The summarized entries begin after the last entry that both branches share, and end with the
abandoned leaf. A compaction among the summarized entries does not end the range: the summary of the
compaction is summarized, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.context import prompts
from perdure.context.files import FileLists, file_lists, with_file_lists
from perdure.context.summary import summary_prompt, summary_request
from perdure.context.tokens import BYTES_PER_TOKEN, estimate_tokens
from perdure.context.transcript import transcript
from perdure.models.protocol import ModelRequest
from perdure.session.codec import readable
from perdure.session.entries import Entry
from perdure.session.kinds import BranchSummary, Compaction, CustomMessage
from perdure.session.messages import Message, user

MAX_OUTPUT_TOKENS = 2_048
SUMMARY_ENTERS_BELOW = 0.9
"""A summary over the budget is included if less than this share of the budget is used so far."""


class _Told(msgspec.Struct, frozen=True):
    """A message of the abandoned branch, and whether the message is a summary."""

    message: Message
    is_summary: bool = False


def branch_summary_request(
    entries: Sequence[Entry],
    model: str,
    *,
    budget_tokens: int,
    scale: float = 1.0,
    focus: str | None = None,
) -> ModelRequest | None:
    """Return the request to `model` for a summary of `entries`; None if the branch is empty.

    The request contains the newest messages that fit `budget_tokens`, without tool results. If the
    newest message alone is larger than `budget_tokens`, it is cut.
    Units: `budget_tokens` limits the conversation in the request, without perdure's instructions.
    """
    told = [each for entry in entries if (each := _abandoned_text(entry)) is not None]
    if not told:
        return None
    shown = transcript(each.message for each in _newest_within(told, budget_tokens, scale))
    if not shown:
        shown = _beginning(transcript([told[-1].message]), budget_tokens, scale)
    text = summary_prompt(shown, prompts.SUMMARY_BRANCH, focus)
    return summary_request(model, text, MAX_OUTPUT_TOKENS)


def branch_summary_text(entries: Sequence[Entry], reply: str) -> str:
    """Return the text of the branch summary: an introduction, the model's `reply` and the files."""
    text = f"{prompts.BRANCH_PREAMBLE}\n\n{reply.strip()}"
    return with_file_lists(text, branch_files(entries))


def branch_files(entries: Sequence[Entry]) -> FileLists:
    """Return the files that the branch read and changed, including files named in its summaries."""
    messages: list[Message] = []
    earlier: list[FileLists] = []
    for entry in entries:
        match readable(entry):
            case Message() as message:
                messages.append(message)
            case BranchSummary() | Compaction() as body:
                earlier.append(FileLists(body.read_files, body.modified_files))
            case _:
                pass
    return file_lists(messages, earlier)


def _abandoned_text(entry: Entry) -> _Told | None:
    match readable(entry):
        case Message() as message if message.role != "tool":
            told = _Told(message)
        case CustomMessage(in_context=True) as custom:
            told = _Told(Message("user", custom.parts))
        case BranchSummary() | Compaction() as body if body.summary.strip():
            told = _Told(
                user(prompts.wrap_in_tag("summary", body.summary.strip())), is_summary=True
            )
        case _:
            return None
    return told if transcript([told.message]) else None


def _newest_within(told: Sequence[_Told], budget_tokens: int, scale: float) -> list[_Told]:
    chosen: list[_Told] = []
    used = 0
    for each in reversed(told):
        tokens = estimate_tokens(each.message, scale)
        if used + tokens > budget_tokens:
            if each.is_summary and used < budget_tokens * SUMMARY_ENTERS_BELOW:
                chosen.append(each)
            break
        chosen.append(each)
        used += tokens
    chosen.reverse()
    return chosen


def _beginning(text: str, budget_tokens: int, scale: float) -> str:
    room = int(budget_tokens / scale * BYTES_PER_TOKEN)
    return text.encode(errors="replace")[:room].decode(errors="ignore")
