"""Build a model's context from a window of the log: a valid history within a budget.

`build_context` is the only way from the log to a request. `build_context` never raises an error,
whatever the log contains. No content is omitted silently: `dropped` and `skipped` count what is
omitted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from perdure.bounds.short_repr import ShortRepr
from perdure.context.emission import ContextMessage, Emitted, emit
from perdure.context.tokens import (
    CUT_SHORT,
    SCALE_MAX,
    context_tokens,
    estimate_tokens,
    reported_tokens,
)
from perdure.context.tool_pairs import repair_pairs
from perdure.context.validity import alternating
from perdure.session.codec import readable
from perdure.session.entries import Entry
from perdure.session.fold import ContextWindow
from perdure.session.ids import EntryId
from perdure.session.kinds import ModelChange, ThinkingChange
from perdure.session.ledger import History
from perdure.session.messages import Message


class Context(ShortRepr, frozen=True):
    """The content of a model request.

    `thinking_level` None means "off". If older exchanges were omitted because of the budget or
    `max_messages`, `dropped` counts the entries before the oldest exchange that is sent; otherwise,
    `dropped` is 0. `dropped` does not count pinned entries or the compaction whose summary is sent.
    `skipped` counts the unreadable entries and message parts after the start of the oldest exchange
    that is sent.
    Units: `tokens` is the expected size of a call: the newest reported usage, plus estimates for
    later messages. If the expected size exceeds the budget, `tokens` is the estimate of the
    messages alone.
    Shape: `messages` is valid for every provider (see ``validity``), and can be empty.
    """

    model: str | None
    thinking_level: str | None
    tokens: int
    messages: tuple[ContextMessage, ...]
    dropped: int
    skipped: int = 0


class Trim(msgspec.Struct, frozen=True):
    """The result of trimming a context: the remaining messages, their tokens, and what was omitted.

    If older exchanges were omitted, `first` is the first message of the oldest remaining exchange.
    `spared` counts the pinned entries that remain although their exchange was omitted.
    """

    messages: tuple[ContextMessage, ...]
    dropped: int
    tokens: int
    first: ContextMessage | None = None
    spared: int = 0


def build_context(
    window: ContextWindow,
    *,
    budget_tokens: int | None = None,
    scale: float = 1.0,
    history: History = "full",
    model: str | None = None,
    max_messages: int | None = None,
) -> Context:
    """Return the context of `window`.

    `model` is the model to be called; the default is the current model of the branch. Reasoning is
    never part of a context (`tool_pairs.repair_pairs` explains why), so it never reaches another
    provider. With `history` "text_only", only the questions and the answers of completed turns
    remain; the current turn keeps its tool calls. With a budget, whole exchanges are omitted,
    oldest first, until the remaining ones fit. The compaction's summary, pinned entries and the
    newest exchange always remain. If more than `max_messages` messages remain, not counting the
    summary and pinned messages, whole exchanges are omitted as well.
    Units: `budget_tokens` is in tokens, as estimated with `scale`.
    """
    assert not window.earlier  # `window_end` handles windows read with a limit
    said = emit(window)
    messages = said.messages if history == "full" else text_only(said.messages)
    paired = repair_pairs(messages)
    reported = context_tokens([each.message for each in paired], scale)
    trim = Trim(paired, 0, reported)
    if budget_tokens is not None or max_messages is not None:
        trim = trim_history(
            paired,
            [estimate_tokens(each.message, scale) for each in paired],
            reported,
            math.inf if budget_tokens is None else budget_tokens,
            pinned=leading(paired, window.pinned, has_summary=said.has_summary),
            pins=window.pins,
            max_messages=max_messages,
        )
    return context_of(window, said, trim, model)


def request_tokens(context: Context, around: float, scale: float = 1.0) -> int:
    """Return the tokens of a request with `context`, including the instructions and tools.

    A count that a provider reported includes the instructions and tools already.
    Units: `around` is the tokens of the instructions and tools, as `unscaled_around` returns them.
    """
    if any(reported_tokens(each.message) for each in context.messages):
        return context.tokens
    return context.tokens + math.ceil(around * scale)


def context_of(window: ContextWindow, said: Emitted, trim: Trim, model: str | None) -> Context:
    """Return the context of `window` with the messages that remain in `trim`."""
    dropped, skipped = 0, said.skipped_count
    if trim.first is not None:
        dropped, skipped = _left_out(window, said, trim)
    return Context(
        model=model or _model_of(window),
        thinking_level=_thinking_level_of(window),
        tokens=trim.tokens,
        messages=alternating(trim.messages),
        dropped=dropped,
        skipped=skipped,
    )


def _left_out(window: ContextWindow, said: Emitted, trim: Trim) -> tuple[int, int]:
    """Return how many entries were omitted before `trim.first`, and how many pieces were skipped.

    A piece at or after `trim.first` is skipped if this version cannot read it.
    """
    assert trim.first is not None
    places = {entry.id: place for place, entry in enumerate(window.entries)}
    place = places.get(trim.first.entry_id, 0) if trim.first.entry_id else 0
    compaction = window.state.compaction
    is_summary_before = compaction is not None and places.get(compaction.id, -1) < place
    dropped = window.earlier + place - trim.spared - is_summary_before
    # Messages that a compaction retains are parts of one entry, some of which may be left out.
    dropped = max(dropped, min(trim.dropped, 1))
    skipped = sum(count for id_, count in said.skips if places.get(id_, place) >= place)
    return dropped, skipped


def _model_of(window: ContextWindow) -> str | None:
    entry = window.state.model_change
    body = readable(entry) if entry is not None else None
    return body.model if isinstance(body, ModelChange) else None


def _thinking_level_of(window: ContextWindow) -> str | None:
    entry = window.state.thinking_change
    body = readable(entry) if entry is not None else None
    return body.level if isinstance(body, ThinkingChange) else None


def text_only(messages: Sequence[ContextMessage]) -> tuple[ContextMessage, ...]:
    """Return `messages` without the tool calls and results of completed turns.

    A turn is completed when it has an answer with text and without tool calls. The user messages
    and the answer of a completed turn remain. The usage reported with the answer of a completed
    turn is removed, because this usage counted messages that are now omitted.
    """
    over = end_of_turns(messages)
    return (*texts_in(messages[:over]), *messages[over:])


def end_of_turns(messages: Sequence[ContextMessage]) -> int:
    """Return how many of `messages` belong to completed turns."""
    places = range(len(messages) - 1, -1, -1)
    return 1 + next((n for n in places if _ends_turn(messages[n].message)), -1)


def texts_in(messages: Sequence[ContextMessage]) -> tuple[ContextMessage, ...]:
    """Return the questions and answers in `messages`, all of which belong to completed turns."""
    return tuple(_without_usage(each) for each in messages if _is_text(each.message))


def _ends_turn(message: Message) -> bool:
    is_whole = message.role == "assistant" and message.stop_reason not in CUT_SHORT
    return is_whole and not message.tool_calls and bool(message.text.strip())


def _is_text(message: Message) -> bool:
    return message.role != "tool" and not message.tool_calls


def _without_usage(each: ContextMessage) -> ContextMessage:
    return msgspec.structs.replace(each, message=msgspec.structs.replace(each.message, usage=None))


def leading(
    messages: Sequence[ContextMessage], pinned: Sequence[Entry], *, has_summary: bool
) -> int:
    """Return the number of messages before the conversation: the summary and pinned messages."""
    if not pinned:
        return int(has_summary)
    ids = {entry.id for entry in pinned}
    last = max((n for n, each in enumerate(messages) if ids & {*each.entry_ids}), default=-1)
    return max(int(has_summary), last + 1)


def trim_history(
    messages: tuple[ContextMessage, ...],
    sizes: Sequence[int],
    reported: int,
    budget_tokens: float,
    *,
    pinned: int,
    pins: frozenset[EntryId],
    max_messages: int | None = None,
) -> Trim:
    """Return `messages` without the oldest exchanges, so that the remaining messages fit.

    The first `pinned` messages always remain. Entries in `pins` remain even if their exchange is
    omitted. `max_messages` limits the messages after the first `pinned` ones, but the newest
    exchange always remains complete.
    Units: `sizes` are the estimated tokens of the messages; `reported` is the result of
    `context_tokens`.
    """
    if not messages:
        return Trim(messages, 0, reported)
    factor = _factor(
        messages, sizes, reported, budget_tokens, pinned=pinned, max_messages=max_messages
    )
    starts = [pinned, *_exchange_starts(messages, pinned + 1)]
    start = _first_that_fits(starts, sizes, budget_tokens / factor, pinned)
    if max_messages is not None:
        start = max(start, _first_of(starts, len(messages) - max_messages))
    if start == pinned and reported <= budget_tokens:
        return Trim(messages, 0, reported)
    out = range(pinned, start)
    spared = [n for n in out if not pins.isdisjoint(messages[n].entry_ids)] if pins else []
    kept = (*messages[:pinned], *(_without_usage(messages[n]) for n in spared), *messages[start:])
    left = sum(sizes[:pinned]) + sum(sizes[n] for n in spared) + sum(sizes[start:])
    dropped = sum(len(messages[n].entry_ids) for n in out)
    spared_ids = sum(len(messages[n].entry_ids) for n in spared)
    first = messages[start] if start > pinned else None
    return Trim(kept, dropped - spared_ids, round(left * factor), first, spared_ids)


def _factor(
    messages: Sequence[ContextMessage],
    sizes: Sequence[int],
    reported: int,
    budget_tokens: float,
    *,
    pinned: int,
    max_messages: int | None,
) -> float:
    """Return the factor that corrects the estimates of the newest messages that fit the budget.

    If all messages fit according to their estimates, the factor corrects their sum to the newest
    reported usage. If not all messages fit, the factor uses the difference between the reported
    usages of two answers as the true size of the messages between them. Messages that are too old
    to be sent do not influence the factor.
    """
    room, more, later, between = budget_tokens, 0, 0, 0
    for at in range(len(messages) - 1, -1, -1):
        is_most = max_messages is not None and at >= pinned and len(messages) - at > max_messages
        if room <= 0 or is_most:
            newest = sum(sizes[at + 1 :])
            return _correction(newest + more, newest)
        now = reported_tokens(messages[at].message)
        if now:
            if later > now:
                more += later - now - between
            later, between = now, 0
        between += sizes[at]
        room -= sizes[at]
    return _correction(reported, sum(sizes))


def _correction(reported: int, estimated: int) -> float:
    """Return the factor that makes the estimates match the reported usage.

    The factor is never less than 1, so that a provider that reports too little usage cannot disable
    a budget. The factor is at most `SCALE_MAX`, because a larger difference comes from instructions
    and tools, which trimming cannot remove.
    """
    return min(SCALE_MAX, max(1.0, reported / estimated)) if estimated else 1.0


def _first_that_fits(
    starts: Sequence[int], sizes: Sequence[int], budget: float, pinned: int
) -> int:
    """Return the first of `starts` for which the messages from it on fit; the last if none does."""
    left = sum(sizes)
    at = pinned
    for start in starts:
        left -= sum(sizes[at:start])
        at = start
        if left <= budget:
            return start
    return starts[-1]


def _first_of(starts: Sequence[int], least: int) -> int:
    """Return the first of `starts` at or after `least`; the last start if there is none."""
    return next((start for start in starts if start >= least), starts[-1])


def _exchange_starts(messages: Sequence[ContextMessage], first: int) -> list[int]:
    """Return the positions, from `first` on, of user messages that follow another role."""
    return [
        n
        for n in range(first, len(messages))
        if messages[n].message.role == "user" and messages[n - 1].message.role != "user"
    ]
