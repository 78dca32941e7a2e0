"""Convert a compaction plan to model requests, and the replies to the compaction's text.

There is one request for the history and, if the cut is inside a turn, another request for the start
of that turn. The request for the history and the request for the turn are independent of each
other. If a request does not fit into the model's window, the history and the start of the turn are
divided into parts, with one request for each part. Each request quotes the summary of the earlier
parts. The engine calls the model, rejects unusable replies, and appends the compaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from perdure.context import prompts
from perdure.context.compaction import CompactionPlan
from perdure.context.files import FileLists, with_file_lists, without_file_lists
from perdure.context.tokens import BYTES_PER_TOKEN, estimate_request
from perdure.context.transcript import transcript
from perdure.models.protocol import ModelRequest
from perdure.session.messages import user

MIN_SUMMARY_CHARACTERS = 20
PREFIX_SHARE = 0.625
"""The summary of a split turn's start gets this share of the output limit."""
MOST_PARTS = 16
"""Maximum number of requests for one summary; the middle of a longer conversation is omitted."""
LEAST_PART_TOKENS = 100
"""If the model's window has less room than this for a part, summaries are not divided."""


def summary_requests(
    plan: CompactionPlan,
    model: str,
    *,
    focus: str | None = None,
    max_output_tokens: int | None = None,
) -> tuple[ModelRequest, ...]:
    """Return the requests to `model` that `plan` needs.

    `focus` names details that the summary must preserve.
    Shape: one or two requests: first for the history, then for the turn prefix. If there is no
    history to summarize, there is no request for the history, and the previous summary stays
    unchanged.
    """
    requests: list[ModelRequest] = []
    if plan.history:
        text = _update_prompt(transcript(plan.history), plan.previous_summary, focus)
        requests.append(summary_request(model, text, max_output_tokens))
    if plan.turn_prefix:
        text = summary_prompt(transcript(plan.turn_prefix), prompts.SUMMARY_TURN_PREFIX, focus)
        limit = max_output_tokens and max(1, int(max_output_tokens * PREFIX_SHARE))
        requests.append(summary_request(model, text, limit))
    return tuple(requests)


def summary_request(model: str, text: str, max_output_tokens: int | None) -> ModelRequest:
    """Return the request for a summary; `text` is its prompt."""
    return ModelRequest(
        model=model,
        messages=(user(text),),
        system=prompts.SUMMARY_SYSTEM,
        max_output_tokens=max_output_tokens,
    )


_LEFT_OUT = "[{} more characters were left out]"


class SummaryParts(msgspec.Struct, frozen=True):
    """The parts of a conversation that is too long for one request.

    Units: `summary_bytes` limits the quoted summary of earlier parts, in UTF-8 bytes.
    """

    texts: tuple[str, ...]
    summary_bytes: int
    model: str
    focus: str | None
    max_output_tokens: int | None

    def request(self, part: str, previous: str | None) -> ModelRequest:
        """Return the request for one summary of `previous` and `part`."""
        if previous is not None:
            previous = _without_middle(without_file_lists(previous), self.summary_bytes)
        text = _update_prompt(part, previous, self.focus)
        return summary_request(self.model, text, self.max_output_tokens)


def summary_parts(
    plan: CompactionPlan,
    model: str,
    most_tokens: int,
    *,
    scale: float = 1.0,
    focus: str | None = None,
    max_output_tokens: int | None = None,
) -> SummaryParts | None:
    """Divide the messages of `plan` so that each request has at most `most_tokens`.

    Returns None if `most_tokens` leaves no room for a part, so that the requests cannot be divided.
    Units: `most_tokens` is in tokens, as estimated with `scale`.
    """
    blank = _LEFT_OUT.format(10**9)
    frame = summary_request(model, _update_prompt("", blank, focus), max_output_tokens)
    room = most_tokens - estimate_request(frame, scale)
    quoted = room // 3 if max_output_tokens is None else min(room // 3, 2 * max_output_tokens)
    if room - quoted < LEAST_PART_TOKENS:
        return None
    size, summary_bytes = (int(n * BYTES_PER_TOKEN / scale) for n in (room - quoted, quoted))
    whole = transcript((*plan.history, *plan.turn_prefix))
    texts = tuple(_parts(_without_middle(whole, MOST_PARTS * size * 3 // 4), size))
    return SummaryParts(texts, summary_bytes, model, focus, max_output_tokens)


def _parts(text: str, size: int) -> Iterator[str]:
    """Yield `text` in parts of at most `size` bytes, cut between paragraphs where possible."""
    content = text.encode(errors="surrogatepass")
    start = 0
    while len(content) - start > size:
        cut = content.rfind(b"\n\n", start + size * 3 // 4, start + size)
        end = cut if cut > 0 else _character_start(content, start + size)
        yield content[start:end].decode(errors="surrogatepass")
        start = end
    yield content[start:].decode(errors="surrogatepass")


def _without_middle(text: str, size: int) -> str:
    """Return approximately `size` bytes of `text`: its beginning, a mark, and its end."""
    content = text.encode(errors="surrogatepass")
    if len(content) <= size:
        return text
    head = _character_start(content, size // 2)
    tail = _character_start(content, len(content) - size // 2)
    first, left_out, last = (
        each.decode(errors="surrogatepass")
        for each in (content[:head], content[head:tail], content[tail:])
    )
    return f"{first}\n{_LEFT_OUT.format(len(left_out))}\n{last}"


def _character_start(content: bytes, at: int) -> int:
    """Return the start of the character in the UTF-8 text `content` that contains byte `at`."""
    while at > 0 and content[at] & 0xC0 == 0x80:
        at -= 1
    return at


def _update_prompt(text: str, previous: str | None, focus: str | None) -> str:
    """Return the prompt for a summary of the transcript `text`, and of `previous` if there is one.

    Only the text of `previous` is quoted, not its lists of files.
    """
    if previous is None:
        return summary_prompt(text, prompts.SUMMARY_NEW, focus)
    return summary_prompt(text, prompts.SUMMARY_UPDATE, focus, without_file_lists(previous))


def summary_prompt(
    text: str, instructions: str, focus: str | None, previous: str | None = None
) -> str:
    """Return the message that asks for a summary of the conversation `text`."""
    blocks = [prompts.wrap_in_tag("conversation", text)]
    if previous:
        blocks.append(prompts.wrap_in_tag("previous-summary", previous))
    blocks.append(instructions)
    if focus and focus.strip():
        blocks.append(prompts.FOCUS + focus.strip())
    return "\n\n".join(blocks)


def summary_text(plan: CompactionPlan, replies: Sequence[str]) -> str:
    """Return the summary made from `replies` to the requests of `summary_requests`.

    Shape: the text begins with the summary of the history. For a split turn, ``---``, a heading and
    the summary of the turn's start follow. The text ends with the lists of the files that the
    conversation read and changed.
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


def summary_length(text: str) -> int:
    """Return the number of characters of a summary, without white space and lists of files."""
    return len("".join(without_file_lists(text).split()))


def is_usable_summary(text: str) -> bool:
    """Return True if the single reply `text` can replace the summarized messages.

    The text must have at least `MIN_SUMMARY_CHARACTERS`, not counting white space and lists of
    files. A summary with fewer characters would remove the conversation from the context without
    replacing it.
    """
    return summary_length(text) >= MIN_SUMMARY_CHARACTERS
