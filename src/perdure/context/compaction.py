"""When to compact, and where to cut: what is to be summarised and what stays as it is.

A plan only; ``summary`` turns it into requests and their replies into a text, and the engine
appends the ``compaction``. Everything that is in the context now is, after it, either in the part
that stays or in the part that was summarised: a message that an earlier compaction kept is never
lost by the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate

import msgspec

from perdure.context.build import build_context
from perdure.context.emission import (
    Shown,
    compaction_of,
    readable_body,
    retained_messages,
    shown_entries,
)
from perdure.context.files import FileLists, file_lists
from perdure.context.pins import with_pins
from perdure.context.tokens import estimate_tokens
from perdure.session.entries import Entry
from perdure.session.fold import ContextWindow, window_of
from perdure.session.ids import EntryId
from perdure.session.kinds import MESSAGE, BranchSummary, Compaction
from perdure.session.messages import Message, ToolCallPart, ToolResultPart

KEEP_RECENT_TOKENS = 20_000
TRIGGER = 0.8


class CompactionPlan(msgspec.Struct, frozen=True):
    """What a compaction would do.

    `first_kept` is where the part that stays begins; None keeps nothing. `history` is to be
    summarised, together with `previous_summary`. Where the cut falls inside a turn, `turn_prefix`
    is the part of that turn before the cut, summarised by itself. `unanswered` is the text of the
    user's newest message, where it leaves the context before it was answered.
    Units: `tokens_before` are the context's before the compaction.
    Shape: files sorted, those changed are not among those read.
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
    """`at`: what stays begins here. `turn`: the turn that `at` splits begins here, if it does."""

    at: int
    turn: int | None


def should_compact(
    tokens: int,
    window_tokens: int | None,
    *,
    reserve_tokens: int | None = None,
    trigger: float = TRIGGER,
) -> bool:
    """Whether a context of `tokens` is too full for a model whose window is `window_tokens`.

    It is when less than `reserve_tokens` are left; where that is not set, when more than the share
    `trigger` of the window is used. A window nobody knows is never too full.
    """
    if window_tokens is None:
        return False
    if reserve_tokens is not None:
        return tokens > window_tokens - reserve_tokens
    return tokens > trigger * window_tokens


def plan_compaction(
    window: ContextWindow, *, keep_recent_tokens: int = KEEP_RECENT_TOKENS, scale: float = 1.0
) -> CompactionPlan | None:
    """How to compact `window` so that about the newest `keep_recent_tokens` stay as they are.

    None when there is nothing to compact: nothing was said since the last compaction, or nothing
    would leave the context. With `keep_recent_tokens` 0 nothing stays.
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
        tokens_before=build_context(window, scale=scale).tokens,
        read_files=files.read,
        modified_files=files.modified,
    )


def _summary_of(compaction: Compaction | None) -> str | None:
    """What a model wrote in `compaction`."""
    if compaction is None:
        return None
    return (compaction.own_summary or compaction.summary).strip() or None


def plan_node_compaction(
    window: ContextWindow, begins_at: EntryId | None, *, scale: float = 1.0
) -> CompactionPlan | None:
    """How to compact `window` to a summary of what was said since the entry `begins_at`.

    What came before it leaves the context without being told of: the log is its archive. Only what
    the user said last and nobody answered stays. Without `begins_at`, and where nothing was
    answered since, everything is summarised, together with the newest summary. None when there is
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
        tokens_before=build_context(window, scale=scale).tokens,
        read_files=files.read,
        modified_files=files.modified,
        unanswered=None if kept is not None else _unanswered_text(history),
    )


def _unanswered_text(history: Sequence[Message]) -> str | None:
    """The text of the user's newest message in `history`, unless it was answered."""
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


class LeftContext(msgspec.Struct, frozen=True):
    """What a compaction took out of the context.

    Shape: `entries` left, root -> leaf; `roles` counts their messages, `tool_calls` the calls in
    them. `pinned` would have left, and stays as it was said.
    Units: tokens, of the whole context, as the compaction has them.
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
    """What the compaction at the end of `path` (a branch) took out, though it may be undone since.

    None when the last entry of `path` is no compaction.
    """
    body = readable_body(path[-1]) if path else None
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
    """Where to cut; None when everything fits into what is kept, or no cut is possible."""
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
        # Behind an oversized result there may be no place to cut: then the last one before it, so
        # that at least what stands before that place leaves the context.
        chosen = next((n for n in candidates if n >= enough), candidates[-1])
    if chosen is None:
        return None
    at = _with_settings_before(shown, chosen)
    return _Cut(at, _turn_split_by(shown, at, chosen))


def _enough_from(shown: Sequence[Shown], keep_recent_tokens: int, scale: float) -> int | None:
    """The last position from which on there are `keep_recent_tokens`; None if there are fewer."""
    total = 0
    for position in range(len(shown) - 1, -1, -1):
        message = shown[position].message
        total += estimate_tokens(message, scale) if message else 0
        if message and total >= keep_recent_tokens:
            return position
    return None


def _candidates(shown: Sequence[Shown], retained: Sequence[Message]) -> list[int]:
    """Where one may cut: before a message that is no result, not between a call and its result."""
    inside = _between_call_and_result(shown, retained)
    return [
        n
        for n, each in enumerate(shown)
        if each.message is not None and each.message.role != "tool" and not inside[n]
    ]


def _between_call_and_result(shown: Sequence[Shown], retained: Sequence[Message]) -> list[bool]:
    """For each position, whether a cut there would part a tool call from its result."""
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
    """`at` moved back over entries that are no messages: they belong to what follows them."""
    while at > 0 and shown[at - 1].entry.kind not in (MESSAGE, Compaction.kind):
        at -= 1
    return at


def _turn_split_by(shown: Sequence[Shown], at: int, chosen: int) -> int | None:
    """Where the turn begins that a cut at `at` splits; None when it splits none."""
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
        body = readable_body(each.entry) if each.entry.kind == BranchSummary.kind else None
        if isinstance(body, BranchSummary):
            earlier.append(FileLists(body.read_files, body.modified_files))
    return file_lists(messages, earlier)
