"""Call the model for an answer: stream the answer, show it, and store the part received so far."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, TypeVar

import msgspec

from perdure.bounds.callbacks import run_callback, run_guarded
from perdure.context.incremental.prompt import Prompt, prompt_of
from perdure.engine.turns.config import Link, TurnConfig
from perdure.engine.turns.environment import Environment, RenewCredentials, RequestSettings
from perdure.engine.turns.executor.partial_answers import PartialStorage
from perdure.engine.turns.executor.working_memory import (
    recalled_block,
    room_for,
    smaller_block,
    tokens_of,
    with_block,
    without_unanswered,
)
from perdure.engine.turns.inputs import Answered, CallFailed
from perdure.engine.turns.lease import LeaseHolder
from perdure.engine.turns.rules.budget import estimated_usage
from perdure.engine.turns.state import OpenCall, TurnState
from perdure.engine.windows import FollowedWindow
from perdure.errors import (
    ContextOverflow,
    CorruptLog,
    EntryNotFound,
    MediaMissing,
    ModelError,
    StoreError,
)
from perdure.events.envelope import EventDraft
from perdure.events.types import LiveType
from perdure.memory.injection import items_in
from perdure.models.protocol import Delta, ModelRequest, TextDelta, ThinkingDelta, streaming
from perdure.models.stream import AnswerBuilder, WholePairs
from perdure.secrets.mask import log_failure, mask_secrets
from perdure.session.codec import encode
from perdure.session.ledger import TrimLimit, Trimmed
from perdure.session.media.inline import SCHEME
from perdure.session.media_storage.embedded_base64 import stored_message
from perdure.session.messages import Message, Usage

_log = logging.getLogger(__name__)

T = TypeVar("T")

_NOT_RENEWED = (
    "renew_credentials must return True once %s has another key, else False; it returned %s, so "
    "the key counts as refused"
)


def _deltas_of(
    environment: Environment, request: ModelRequest
) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
    """Call the model; the call fails if the provider is silent for too long."""
    limits = msgspec.structs.asdict(environment.silence)
    return streaming(environment.models, msgspec.structs.replace(request, **limits))


async def whole_answer(environment: Environment, request: ModelRequest) -> Message:
    """Return the complete answer to `request`."""
    builder = AnswerBuilder(request.model)
    async with _deltas_of(environment, request) as deltas:
        async for delta in deltas:
            builder.add(delta)
    return builder.build()


async def client_call(model: str, work: Awaitable[T]) -> T:
    """Return the result of `work`, which calls the client of `model`.

    A provider's error text can contain the key, so credentials in the reason are masked.
    Raises: ModelError if the client raises any error; StoreError if the store fails.
    """
    try:
        return await run_guarded(work)
    except StoreError:
        raise
    except ModelError as error:
        error.reason, error.args = mask_secrets(error.reason), (mask_secrets(str(error)),)
        raise
    except Exception as error:
        log_failure(_log, error, "the client of %s failed", model)
        reason = f"its client failed ({type(error.__cause__ or error).__name__})"
        raise ModelError(model, reason) from error


async def key_renewed(renew: RenewCredentials | None, provider: str) -> bool:
    """Return whether `provider` has a new key now; False if the renewal failed."""
    if renew is None:
        return False
    try:
        is_renewed: object = await run_callback(renew, provider)
    except Exception as error:  # noqa: BLE001 - after any error the key is unchanged
        told = (provider, type(error).__name__)
        _log.warning("the credentials of %s could not be renewed (%s)", *told)
        return False
    if not isinstance(is_renewed, bool):
        _log.warning(_NOT_RENEWED, provider, type(is_renewed).__name__)
    return is_renewed is True


class AnswerCall:
    """Makes one model call for an answer, from request to outcome."""

    def __init__(
        self,
        environment: Environment,
        leadership: LeaseHolder,
        config: TurnConfig,
        settings: RequestSettings,
        call: OpenCall,
        *,
        branch: FollowedWindow,
        turn: TurnState,
    ) -> None:
        self._environment = environment
        self._leadership = leadership
        self._config = config
        self._settings = settings
        self._call = call
        self._branch = branch
        self._recalled = turn.recalled
        working = config.working
        self._prefers_compaction = (
            config.compaction.is_enabled
            and working is not None
            and working.is_compacted
            and not turn.has_compacted
        )
        # Unless the call is always repeated, it matters whether an answer had begun.
        self._keeps_beginning = turn.on_interrupt != "retry"
        self._builder: AnswerBuilder | None = None
        self._pairs = WholePairs()
        self._request_tokens: int | None = None

    async def outcome(self) -> Answered | CallFailed:
        """Call the model; return its whole answer, or how the call failed.

        Raises: LeaseLost if the session was taken over during the stream.
        """
        try:
            prompt, trimmed = await self._prompt()
            request = await self._request(prompt)
        except (MediaMissing, ContextOverflow) as error:
            return self._failure(error)
        self._request_tokens = self._call.tokens_estimated or prompt.tokens
        self._builder = AnswerBuilder(request.model, prompt.call_ids)
        try:
            message = await client_call(request.model, self._stream(request, self._builder))
        except ModelError as error:
            return self._failure(error)
        if message.usage is not None:
            size = prompt.size + self._settings.size
            self._environment.scales.learn(request.model, size, message.usage)
        usage, is_estimated = self.usage(message)
        message, contents = stored_message(msgspec.structs.replace(message, usage=usage))
        return Answered(message, trimmed, is_estimated, contents)

    def usage(self, arrived: Message | None) -> tuple[Usage | None, bool]:
        """Return the usage of the call with its price, and whether the usage is an estimate.

        `arrived` is the answer, or the part of it that arrived. If the provider has reported a
        count, this count is used. If the answer was interrupted, the count might cover only a part
        of the answer, so the output tokens are at least the estimated ones.

        Shape: the usage is None if no request was made.
        """
        builder, model = self._builder, self._call.model
        if builder is None:
            return None, False
        estimated = estimated_usage(model, self._request_tokens, arrived, self._config)
        counted = builder.counted
        is_whole = arrived is not None and arrived.stop_reason is not None
        if counted is None:
            return estimated, True
        if not is_whole and estimated is not None:
            most = max(counted.output_tokens, estimated.output_tokens)
            counted = msgspec.structs.replace(counted, output_tokens=most, cost_microcents=None)
        cost = self._config.cost(model, counted)
        return msgspec.structs.replace(counted, cost_microcents=cost), not is_whole

    def _failure(self, error: ModelError) -> CallFailed:
        partial = self.partial()
        builder = self._builder
        has_begun = builder is not None and builder.has_begun
        # A failure before any output was no answer, and costs nothing.
        is_counted = has_begun or (builder is not None and builder.counted is not None)
        usage, is_estimated = self.usage(partial) if is_counted else (None, False)
        return CallFailed(
            error,
            partial,
            self._environment.random01(),
            has_begun=has_begun,
            usage=usage,
            is_estimated=is_estimated,
        )

    def partial(self) -> Message | None:
        """Return the part received so far; None if there is none."""
        partial = self._builder.partial() if self._builder is not None else None
        return partial if partial is not None and partial.parts else None

    async def _prompt(self) -> tuple[Prompt, Trimmed | None]:
        """Return the messages to send, and a record of the messages that are left out.

        Raises: ContextOverflow if the messages exceed the agent's memory limit, or if messages
        would be left out although they can be compacted.
        """
        conversation = await self._branch.now()
        scale = self._environment.scales.of(self._call.model)
        budget = _budget(self._config.link(self._call.link), self._settings)
        memory, limit = self._settings.memory, _Limit("window", budget)
        (texts, boundary), block, most = await self._texts(), None, budget
        if memory is not None:
            around = math.ceil(self._settings.size * scale)
            room = room_for(conversation, self._call.model, memory.max_tokens, around, scale)
            block = recalled_block(texts, boundary, scale, room, budget)
            if memory.max_tokens is not None:
                left = memory.max_tokens - around
                if budget is None or left < budget:
                    most, limit = left, _Limit("max_working_tokens", memory.max_tokens)
                    budget = left - tokens_of(block, scale)
        prompt = prompt_of(
            conversation,
            budget_tokens=budget,
            scale=scale,
            max_messages=self._settings.max_messages,
        )
        if memory is not None and memory.max_tokens is not None and budget is not None:
            prompt = without_unanswered(prompt, conversation, scale, budget)
        if prompt.dropped and self._settings.max_messages is not None:
            whole = prompt_of(conversation, budget_tokens=budget, scale=scale)
            limit = limit if whole.dropped else _Limit("max_messages", None)
        if prompt.dropped and limit.name == "max_working_tokens" and self._prefers_compaction:
            reason = "the history does not fit into max_working_tokens, and can be compacted"
            raise ContextOverflow(self._call.model, reason, prompt.tokens, limit.tokens)
        block = smaller_block(block, texts, boundary, prompt, scale=scale, most=most)
        trimmed, left_out = None, len(texts) - items_in(block)
        if prompt.dropped or left_out:
            why = limit if prompt.dropped else _Limit(None, None)
            kept = len(prompt.messages)
            trimmed = Trimmed(prompt.dropped, kept, why.name, why.tokens, left_out)
        return (prompt if block is None else with_block(prompt, block, scale)), trimmed

    async def _texts(self) -> tuple[Sequence[str], str]:
        """Return the texts that the turn recalled, and the boundary text that marks their block."""
        memory = self._settings.memory
        if memory is None or self._recalled is None:
            return (), ""
        return await memory.texts(self._recalled), self._recalled.boundary

    async def _request(self, prompt: Prompt) -> ModelRequest:
        return ModelRequest(
            model=self._call.model,
            messages=prompt.messages,
            system=self._settings.system,
            tools=self._settings.tools,
            thinking_level=self._settings.thinking_level,
            max_output_tokens=self._settings.max_output_tokens,
            temperature=self._settings.temperature,
            media=await self._media(prompt.handles),
            output_schema=self._settings.output_schema,
        )

    async def _media(self, handles: frozenset[str]) -> Mapping[str, bytes]:
        found: dict[str, bytes] = {}
        for handle in sorted(handles):
            digest = handle.removeprefix(SCHEME)
            try:
                found[handle] = await self._environment.store.blob(digest)
            except (EntryNotFound, CorruptLog):
                raise MediaMissing(self._call.model, handle) from None
        return found

    async def _stream(self, request: ModelRequest, builder: AnswerBuilder) -> Message:
        """Return the whole answer; show and store it while it arrives."""
        keeping = PartialStorage(
            self._environment.clock, lambda: encode(builder.partial()), self._put
        )
        async with keeping, _deltas_of(self._environment, request) as deltas:
            is_beginning = self._keeps_beginning
            async for delta in deltas:
                builder.add(delta)
                if isinstance(delta, TextDelta):
                    self._show("agent:token", delta.text)
                elif isinstance(delta, ThinkingDelta):
                    self._show("agent:reasoning", delta.text)
                else:
                    continue
                if is_beginning and isinstance(delta, TextDelta):
                    is_beginning = False
                    await keeping.now()
                else:
                    keeping.grown(len(delta.text))
        return builder.build()

    async def _put(self, content: bytes) -> None:
        lease = self._leadership.lease
        await self._environment.store.put_partial(lease, self._call.seq, content)

    def _show(self, kind: LiveType, text: str) -> None:
        environment = self._environment
        whole = self._pairs.next(kind, text)
        if text and not whole:
            return
        draft = EventDraft(
            kind,
            self._call.seq,
            whole,
            session_id=environment.stream,
            agent=self._config.agent,
            model=self._call.model,
        )
        environment.bus.tell(draft, environment.clock.now_ms(), self._leadership.lease.epoch)


class _Limit(NamedTuple):
    """The limit to which a request was trimmed."""

    name: TrimLimit | None
    tokens: int | None


def _budget(link: Link, settings: RequestSettings) -> int | None:
    """Return the token limit of the messages; None if the model's window is unknown.

    The rest of the window is reserved for the answer.
    """
    if link.window_tokens is None:
        return None
    reserved = settings.max_output_tokens or link.window_tokens // 10
    return max(link.window_tokens - reserved, link.window_tokens // 2)
