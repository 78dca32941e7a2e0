"""Call the model for a summary, and build the compaction from it."""

from __future__ import annotations

import sys

import msgspec

from perdure.context.build import build_context, request_tokens
from perdure.context.compaction import CompactionPlan, plan_compaction, plan_node_compaction
from perdure.context.pins import with_pins
from perdure.context.summary import (
    MIN_SUMMARY_CHARACTERS,
    SummaryParts,
    is_usable_summary,
    summary_length,
    summary_parts,
    summary_requests,
    summary_text,
)
from perdure.context.tokens import estimate_request
from perdure.engine.hooks.points import BeforeCompact, Block, Compacted
from perdure.engine.turns.config import TurnConfig
from perdure.engine.turns.environment import Environment, SummaryFrame, ToCompact
from perdure.engine.turns.executor.model_call import client_call, whole_answer
from perdure.engine.turns.inputs import CallFailed, NothingToSummarise, Summarised
from perdure.engine.turns.rules.budget import answer_usage, require_affordable
from perdure.engine.windows import pinned_window
from perdure.errors import ContextOverflow, ModelError, SummaryTooShort
from perdure.models.protocol import ModelRequest
from perdure.session.codec import new_tree
from perdure.session.entries import Entry
from perdure.session.fold import ContextWindow, window_of
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import MESSAGE, Compaction, CompactionReason
from perdure.session.messages import Message, Usage
from perdure.session.notes import NodeEntered


async def summarise(
    environment: Environment,
    config: TurnConfig,
    reason: CompactionReason,
    around: float,
    focus: str | None = None,
    *,
    is_asked: bool = False,
    left_microcents: int | None = None,
) -> Summarised | NothingToSummarise | CallFailed:
    """Let the model summarize the messages that can leave the context of the session's branch.

    A summary that is too short counts as a failed call, which leaves the context unchanged. If
    `is_asked`, an earlier attempt has asked the hooks, so they are not asked again.
    Units: `around` is the size of the session's instructions and tools in unscaled tokens;
    `left_microcents` limits the cost of all calls together (`money_left`); None means no limit.
    """
    model, settings = config.model, config.compaction
    working = config.working
    history = sys.maxsize if working is None or not working.is_compacted else working.history
    state = await environment.store.state(environment.stream)
    window = await pinned_window(environment.store, environment.stream, state.leaf)
    scale = environment.scales.of(model)
    if settings.strategy == "node":
        begins_at = await _node_begins_at(environment, window)
        plan = plan_node_compaction(window, begins_at, scale=scale, around=around)
    else:
        kept = min(settings.keep_recent_tokens, history // 4)
        if reason != "manual" and config.window_tokens is not None:
            kept = min(kept, config.window_tokens // 2)  # a small window has room for no more
        plan = plan_compaction(window, keep_recent_tokens=kept, scale=scale, around=around)
    if plan is None:
        return NothingToSummarise()
    frame = await _frame(environment, config, plan, window)
    hooked = None if is_asked else await _ask_hooks(environment, plan, window, reason, frame)
    if isinstance(hooked, Summarised):
        return _measured(hooked, window, around, scale)
    if hooked is not None:
        return hooked
    most = min(settings.summary_tokens, history // 5)
    writing = _SummaryWriting(
        environment, config, plan, focus, most_output=most, left_microcents=left_microcents
    )
    try:
        text = await writing.text()
    except ModelError as error:
        return CallFailed(error, None, environment.random01(), usage=writing.usage)
    compaction = _compaction(plan, window, text, writing.usage, reason)
    summarised = Summarised(_with_frame(compaction, frame), writing.usage)
    return _measured(summarised, window, around, scale)


class _SummaryWriting:
    """Makes the model calls for one summary: one for each request of the plan, or for each part."""

    def __init__(
        self,
        environment: Environment,
        config: TurnConfig,
        plan: CompactionPlan,
        focus: str | None,
        *,
        most_output: int,
        left_microcents: int | None,
    ) -> None:
        self._environment = environment
        self._config = config
        self._model = config.model
        self._left = left_microcents
        self._used = 0  # micro-cents
        self._plan = plan
        self._focus = focus
        window = config.window_tokens
        self._output = most_output if window is None else min(most_output, max(1, window // 4))
        self._room = None if window is None else window - self._output
        self._scale = environment.scales.of(config.model)
        self._replies: list[Message] = []  # those before a failure were paid for

    @property
    def usage(self) -> Usage | None:
        """The usage of all model calls for the summary so far."""
        known = [reply.usage for reply in self._replies if reply.usage is not None]
        return sum(known[1:], known[0]) if known else None

    async def text(self) -> str:
        """Return the text of the compaction. After an overflow, try again with smaller parts.

        Raises: ModelError if a call fails, or if a reply is too short for a summary.
        """
        requests = summary_requests(
            self._plan, self._model, focus=self._focus, max_output_tokens=self._output
        )
        room, largest = self._room, max(estimate_request(each, self._scale) for each in requests)
        if room is None or largest <= room:
            try:
                return summary_text(self._plan, [await self._reply(each) for each in requests])
            except ContextOverflow as error:
                room, overflow = largest // 2, error
        else:
            reason = f"{largest} tokens do not fit a window of {self._room}"
            overflow = ContextOverflow(self._model, reason, largest, self._room)
        while (parts := self._parts(room)) is not None:
            try:
                return await self._folded(parts)
            except ContextOverflow as error:
                room, overflow = room // 2, error
        reason = f"the request for a summary is too long: {overflow.reason}"
        raise ContextOverflow(self._model, reason, largest, self._room) from overflow

    def _parts(self, room: int) -> SummaryParts | None:
        return summary_parts(
            self._plan,
            self._model,
            room,
            scale=self._scale,
            focus=self._focus,
            max_output_tokens=self._output,
        )

    async def _folded(self, parts: SummaryParts) -> str:
        """Summarize each part with the summary of earlier parts; return the compaction's text."""
        summary = self._plan.previous_summary
        for part in parts.texts:
            summary = await self._reply(parts.request(part, summary))
        history = (*self._plan.history, *self._plan.turn_prefix)
        plan = msgspec.structs.replace(self._plan, history=history, turn_prefix=())
        return summary_text(plan, [summary or ""])

    async def _reply(self, request: ModelRequest) -> str:
        tokens = estimate_request(request, self._scale)
        if self._replies and self._left is not None:  # the budget's check allowed the first
            most = request.max_output_tokens or self._output
            require_affordable(self._config, tokens, most, self._used, self._left)
        reply = await client_call(self._model, whole_answer(self._environment, request))
        self._replies.append(reply)
        usage, _ = answer_usage(self._model, tokens, reply, self._config)
        self._used += (usage and usage.cost_microcents) or 0
        require_usable(self._model, reply.text)
        return reply.text


def require_usable(model: str, summary: str) -> None:
    """Raise SummaryTooShort if the reply `summary` of `model` cannot replace messages."""
    length = summary_length(summary)
    if length < MIN_SUMMARY_CHARACTERS:
        raise SummaryTooShort(model, length, MIN_SUMMARY_CHARACTERS)


async def _frame(
    environment: Environment, config: TurnConfig, plan: CompactionPlan, window: ContextWindow
) -> SummaryFrame | None:
    """Return the texts before and after the summary; None unless the strategy is ``node``."""
    if environment.frame_of is None or config.compaction.strategy != "node":
        return None
    kept = next((entry.message for entry in window.entries if entry.id == plan.first_kept), None)
    text = None if kept is None else kept.text
    return await environment.frame_of(ToCompact(plan.unanswered, text, config.window_tokens))


def _with_frame(compaction: Compaction, frame: SummaryFrame | None) -> Compaction:
    if frame is None:
        return compaction
    parts = (frame.before, compaction.summary, frame.after)
    whole = "\n\n".join(part for part in parts if part)
    return msgspec.structs.replace(compaction, summary=whole, own_summary=compaction.summary)


async def _node_begins_at(environment: Environment, window: ContextWindow) -> EntryId | None:
    """Return the id of the entry in `window` at which a flow's newest node begins, if any."""
    shown = {entry.id for entry in window.entries}
    notes = await environment.store.notes(environment.stream, (NodeEntered.kind,))
    return next((note.about for note in reversed(notes) if note.about in shown), None)


async def tell_compacted(environment: Environment, happened: object) -> None:
    """Notify the hooks after a compaction was written to the log."""
    if environment.hooks is not None and isinstance(happened, Summarised):
        await environment.hooks.tell(Compacted(environment.stream, happened.compaction))


async def _ask_hooks(
    environment: Environment,
    plan: CompactionPlan,
    window: ContextWindow,
    reason: CompactionReason,
    frame: SummaryFrame | None,
) -> Summarised | NothingToSummarise | None:
    """Return the summary of a hook; None if no hook answers with a usable summary.

    Returns NothingToSummarise if a hook blocks the compaction.
    """
    if environment.hooks is None:
        return None
    point = BeforeCompact(
        session_id=environment.stream,
        reason=reason,
        history=(*plan.history, *plan.turn_prefix),
        previous_summary=plan.previous_summary,
        tokens_before=plan.tokens_before,
    )
    _, answer = await environment.hooks.ask(point)
    if isinstance(answer, Block):
        return NothingToSummarise()
    if not isinstance(answer, str) or not is_usable_summary(answer):
        return None
    compaction = _compaction(plan, window, answer, None, "hook")
    return Summarised(_with_frame(compaction, frame))


def _compaction(
    plan: CompactionPlan,
    window: ContextWindow,
    text: str,
    usage: Usage | None,
    reason: CompactionReason,
) -> Compaction:
    return Compaction(
        summary=text,
        first_kept=plan.first_kept,
        tokens_before=plan.tokens_before,
        reason=reason,
        read_files=tuple(plan.read_files),
        modified_files=tuple(plan.modified_files),
        usage=usage,
        kept=_kept_count(plan, window),
    )


def _kept_count(plan: CompactionPlan, window: ContextWindow) -> int:
    """Return how many messages stay in the context unchanged."""
    ids = [entry.id for entry in window.entries]
    kept = plan.first_kept
    first = ids.index(kept) if kept is not None and kept in ids else len(ids)
    return sum(entry.kind == MESSAGE for entry in window.entries[first:])


def _measured(
    summarised: Summarised, window: ContextWindow, around: float, scale: float
) -> Summarised:
    """Return `summarised` with the tokens of the next request, counted by building its context.

    Units: `around` is the size of instructions and tools in unscaled tokens.
    """
    new = new_tree(summarised.compaction)
    trial = Entry(StreamId("trial"), 0, "tree", window.leaf, None, 0, new.kind, new.v, new.body)
    entries = (*window.entries, trial)
    after = window_of(entries, window.undone)
    pinned = with_pins(after, (*window.pinned, *entries), window.pins)
    tokens = request_tokens(build_context(pinned, scale=scale), around, scale)
    compaction = msgspec.structs.replace(summarised.compaction, tokens_after=tokens)
    return msgspec.structs.replace(summarised, compaction=compaction)
