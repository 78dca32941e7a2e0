"""Decide when to compact, and where to cut between the part to summarize and the part to keep.

This module only plans a compaction. ``summary`` converts a plan to requests, and the replies to a
text; the engine appends the ``compaction``. After a compaction, every message of the current
context is either kept or part of the summary, so a later compaction never loses a message that an
earlier compaction kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate

import msgspec

from perdure.bounds.short_repr import ShortRepr
from perdure.context.build import build_context, request_tokens
from perdure.context.emission import Shown, compaction_of, retained_messages, shown_entries
from perdure.context.files import FileLists, file_lists
from perdure.context.pins import with_pins
from perdure.context.tokens import estimate_tokens
from perdure.session.codec import readable
from perdure.session.entries import Entry
from perdure.session.fold import ContextWindow, window_of
from perdure.session.ids import EntryId
from perdure.session.kinds import MESSAGE, BranchSummary, Compaction
from perdure.session.messages import Message, ToolCallPart, ToolResultPart

KEEP_RECENT_TOKENS = 20_000
TRIGGER = 0.8


class CompactionPlan(msgspec.Struct, frozen=True):
    """The plan of a compaction.

    `first_kept` is the start of the kept part; None if no message is kept. `history` is summarized
    together with `previous_summary`. If the cut is inside a turn, `turn_prefix` is the part of that
    turn before the cut, summarized separately. `unanswered` is the text of the user's newest
    message, if the compaction removes this message from the context before it is answered.
    Units: `tokens_before` is the size of a request before the compaction, in tokens.
    Shape: `read_files` and `modified_files` are sorted; no file is in both.
    """

    first_kept: EntryId | None
    history: tuple[Message, ...]
    turn_prefix: tuple[Message, ...]
    previous_summary: str | None
    tokens_before: int
    read_files: tuple[str, ...] = ()
    modified_files: tuple[str, ...] = ()
    unanswered: str | None = None


class _Cut(msgspec.Struct, frozen=True):
    """Where a compaction cuts: `at` is the start of the kept part.

    `turn` is the start of the turn that `at` splits; None if `at` splits no turn.
    """

    at: int
    turn: int | None


def should_compact(
    tokens: int,
    window_tokens: int | None,
    *,
    reserve_tokens: int | None = None,
    trigger: float = TRIGGER,
) -> bool:
    """Return True if a context of `tokens` is too full for a window of `window_tokens`.

    The context is too full if fewer than `reserve_tokens` of the window are left. Without
    `reserve_tokens`, the context is too full if more than the share `trigger` of the window is
    used. If the size of the window is unknown, the result is False.
    """
    if window_tokens is None:
        return False
    if reserve_tokens is not None:
        return tokens > window_tokens - reserve_tokens
    return tokens > trigger * window_tokens


def plan_compaction(
    window: ContextWindow,
    *,
    keep_recent_tokens: int = KEEP_RECENT_TOKENS,
    scale: float = 1.0,
    around: float = 0.0,
) -> CompactionPlan | None:
    """Plan a compaction of `window` that keeps approximately the newest `keep_recent_tokens`.

    Returns None if there are no new messages since the last compaction, or if no message would
    leave the context. If `keep_recent_tokens` is 0, no message is retained.
    Units: `around` is the unscaled tokens of the request's instructions and tools.
    """
    shown = shown_entries(window)
    if not _has_news(window, shown):
        return None
    retained = retained_messages(window) or ()
    cut = _cut(shown, retained, keep_recent_tokens, scale)
    if cut is None:
        return None
    split = cut.at if cut.turn is None else cut.turn
    history = (*retained, *_messages(shown[:split]))
    turn_prefix = _messages(shown[split : cut.at])
    if not history and not turn_prefix:
        return None
    files = _files(window, shown[: cut.at], (*history, *turn_prefix))
    previous = compaction_of(window)
    return CompactionPlan(
        first_kept=shown[cut.at].entry.id if cut.at < len(shown) else None,
        history=history,
        turn_prefix=turn_prefix,
        previous_summary=_summary_of(previous),
        tokens_before=request_tokens(build_context(window, scale=scale), around, scale),
        read_files=files.read,
        modified_files=files.modified,
    )


def _summary_of(compaction: Compaction | None) -> str | None:
    """Return the part of the text in `compaction` that a model wrote."""
    if compaction is None:
        return None
    return (compaction.own_summary or compaction.summary).strip() or None


def plan_node_compaction(
    window: ContextWindow, begins_at: EntryId | None, *, scale: float = 1.0, around: float = 0.0
) -> CompactionPlan | None:
    """Plan a compaction of `window` to a summary of the messages since the entry `begins_at`.

    Messages before `begins_at` leave the context without a summary, but remain in the log. Only the
    user's last unanswered message is retained. If `begins_at` is None, or if there is no answer
    after it, everything is summarized, together with the newest summary. Returns None if there is
    nothing to compact.
    """
    shown = shown_entries(window)
    if not _has_news(window, shown):
        return None
    start = next((n for n, each in enumerate(shown) if each.entry.id == begins_at), 0)
    end = len(shown)
    while end > 0 and (
        (each := shown[end - 1].message) is None or each.role not in ("assistant", "tool")
    ):
        end -= 1
    start = start if start < end else 0
    history = _messages(shown[start:end])
    if not history:
        return None
    files = _files(window, shown[start:end], history)
    kept = next((each.entry.id for each in shown[end:] if each.message is not None), None)
    return CompactionPlan(
        first_kept=kept,
        history=history,
        turn_prefix=(),
        previous_summary=_summary_of(compaction_of(window)) if start == 0 else None,
        tokens_before=request_tokens(build_context(window, scale=scale), around, scale),
        read_files=files.read,
        modified_files=files.modified,
        unanswered=None if kept is not None else _unanswered_text(history),
    )


def _unanswered_text(history: Sequence[Message]) -> str | None:
    """Return the text of the user's newest message in `history` if it has no answer."""
    for message in reversed(history):
        if message.role == "assistant" and not message.tool_calls:
            return None
        if message.role == "user":
            return message.text
    return None


def _has_news(window: ContextWindow, shown: Sequence[Shown]) -> bool:
    newest = window.state.compaction
    for each in reversed(shown):
        if newest is not None and each.entry.id == newest.id:
            return False
        if each.message is not None:
            return True
    return False


def _messages(shown: Sequence[Shown]) -> tuple[Message, ...]:
    return tuple(each.message for each in shown if each.message is not None)


class LeftContext(ShortRepr, frozen=True):
    """What a compaction removed from the context.

    Shape: `entries` are the removed entries from root to leaf. `roles` counts the removed messages
    by role; `tool_calls` counts the tool calls in the removed messages. `pinned` are the entries
    that remain because they are pinned.
    Units: `tokens_before` and `tokens_after` are the size of the whole context, as the compaction
    stores it.
    """

    compaction: EntryId
    entries: tuple[EntryId, ...]
    roles: Mapping[str, int]
    tool_calls: int
    pinned: tuple[EntryId, ...]
    tokens_before: int | None
    tokens_after: int | None


def left_context(
    path: Sequence[Entry], undone: frozenset[EntryId], pins: frozenset[EntryId]
) -> LeftContext | None:
    """Return the content that the compaction at the end of the branch `path` removed.

    The result is the same if the compaction was undone later. Returns None if the last entry of
    `path` is not a compaction.
    """
    body = readable(path[-1]) if path else None
    if not isinstance(body, Compaction):
        return None
    before = shown_entries(window_of(path[:-1], undone))
    after = with_pins(window_of(path, undone - {path[-1].id}), path, pins)
    stays = {each.entry.id for each in shown_entries(after)}
    pinned = {entry.id for entry in after.pinned}
    left = [each for each in before if each.entry.id not in stays | pinned]
    said = _messages(left)
    return LeftContext(
        compaction=path[-1].id,
        entries=tuple(each.entry.id for each in left if each.message is not None),
        roles=Counter(message.role for message in said),
        tool_calls=sum(len(message.tool_calls) for message in said),
        pinned=tuple(each.entry.id for each in before if each.entry.id in pinned),
        tokens_before=body.tokens_before,
        tokens_after=body.tokens_after,
    )


# The cut -----------------------------------------------------------------------------------------


def _cut(
    shown: Sequence[Shown], retained: Sequence[Message], keep_recent_tokens: int, scale: float
) -> _Cut | None:
    """Return where to cut; None if everything fits into the kept part, or no cut is possible."""
    if keep_recent_tokens <= 0:
        return _Cut(len(shown), None)
    candidates = _candidates(shown, retained)
    if not candidates:
        return None
    enough = _enough_from(shown, keep_recent_tokens, scale)
    if enough is None:
        more = sum(estimate_tokens(message, scale) for message in (*retained, *_messages(shown)))
        chosen = candidates[0] if more >= keep_recent_tokens else None
    else:
        # After an oversized result there may be no place to cut: use the last one before it, so
        # that at least the messages before that place leave the context.
        chosen = next((n for n in candidates if n >= enough), candidates[-1])
    if chosen is None:
        return None
    at = _with_settings_before(shown, chosen)
    return _Cut(at, _turn_split_by(shown, at, chosen))


def _enough_from(shown: Sequence[Shown], keep_recent_tokens: int, scale: float) -> int | None:
    """Return the start of the shortest tail with `keep_recent_tokens`; None if there is none."""
    total = 0
    for position in range(len(shown) - 1, -1, -1):
        message = shown[position].message
        total += estimate_tokens(message, scale) if message else 0
        if message and total >= keep_recent_tokens:
            return position
    return None


def _candidates(shown: Sequence[Shown], retained: Sequence[Message]) -> list[int]:
    """Return the possible cuts: never before a tool result, or between a call and its result."""
    inside = _between_call_and_result(shown, retained)
    return [
        n
        for n, each in enumerate(shown)
        if each.message is not None and each.message.role != "tool" and not inside[n]
    ]


def _between_call_and_result(shown: Sequence[Shown], retained: Sequence[Message]) -> list[bool]:
    """Return for each position whether a cut at it would separate a tool call from its result."""
    asked = {call.id: -1 for message in retained for call in _calls(message)}
    steps = [0] * (len(shown) + 1)
    for position, each in enumerate(shown):
        if each.message is None:
            continue
        asked.update((call.id, position) for call in _calls(each.message))
        for part in each.message.parts:
            if isinstance(part, ToolResultPart) and part.call_id in asked:
                steps[asked[part.call_id] + 1] += 1
                steps[position + 1] -= 1
    return [depth > 0 for depth in accumulate(steps)]


def _calls(message: Message) -> tuple[ToolCallPart, ...]:
    return message.tool_calls if message.role == "assistant" else ()


def _with_settings_before(shown: Sequence[Shown], at: int) -> int:
    """Return `at`, moved back over preceding entries that are neither messages nor compactions.

    Other entries, such as settings, belong to the next message.
    """
    while at > 0 and shown[at - 1].entry.kind not in (MESSAGE, Compaction.kind):
        at -= 1
    return at


def _turn_split_by(shown: Sequence[Shown], at: int, chosen: int) -> int | None:
    """Return the start of the turn that a cut at `at` splits; None if no turn is split."""
    if any(_begins_turn(each) for each in shown[at : chosen + 1]):
        return None
    return next((n for n in range(at - 1, -1, -1) if _begins_turn(shown[n])), None)


def _begins_turn(each: Shown) -> bool:
    return each.message is not None and each.message.role not in ("assistant", "tool")


# Files -------------------------------------------------------------------------------------------


def _files(
    window: ContextWindow, leaving: Sequence[Shown], messages: Sequence[Message]
) -> FileLists:
    earlier: list[FileLists] = []
    previous = compaction_of(window)
    if previous is not None:
        earlier.append(FileLists(previous.read_files, previous.modified_files))
    for each in leaving:
        body = readable(each.entry) if each.entry.kind == BranchSummary.kind else None
        if isinstance(body, BranchSummary):
            earlier.append(FileLists(body.read_files, body.modified_files))
    return file_lists(messages, earlier)
