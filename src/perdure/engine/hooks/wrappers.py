"""A model client and a tool call, wrapped with hooks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator

import msgspec

from perdure.engine.hooks.points import (
    AfterModelCall,
    BeforeModelCall,
    Block,
    ToolAnswered,
    ToolAsked,
)
from perdure.engine.hooks.registry import Hooks
from perdure.errors import ModelRefused, ToolDenied, ToolError
from perdure.models.protocol import (
    Delta,
    ModelClient,
    ModelInfo,
    ModelRequest,
    StreamEnd,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    streaming,
)
from perdure.models.stream import AnswerBuilder, call_ids
from perdure.session.codec import encode
from perdure.session.messages import Message, TextPart, ThinkingPart, ToolCallPart, Usage
from perdure.tools.execution import ToolRun, failed_run, run_of
from perdure.tools.spec import ToolCall, ToolOutput, ToolSpec


class HookedModels:
    """A model client that runs the hooks around each call, for one session."""

    def __init__(self, models: ModelClient, hooks: Hooks, session_id: str) -> None:
        self._models = models
        self._hooks = hooks
        self._session_id = session_id

    def info(self, model: str) -> ModelInfo:
        """Return the known facts about `model`."""
        return self._models.info(model)

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Call the model with `request`; hooks can change the request or supply the answer.

        Raises: ModelRefused if a hook blocks the call; ModelError if the model call fails.
        """
        if self._hooks.has("before_model_call") or self._hooks.has("after_model_call"):
            return self._stream_request(request)
        return self._models.stream(request)

    async def _stream_request(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        asked = BeforeModelCall(self._session_id, request)
        point, answer = await self._hooks.ask(asked)
        if isinstance(answer, Block):
            raise ModelRefused(request.model, answer.reason)
        request = msgspec.structs.replace(point.request, model=request.model)
        if isinstance(answer, Message):
            for delta in _deltas_of(answer):
                yield delta
            return
        builder = None
        if self._hooks.has("after_model_call"):
            builder = AnswerBuilder(request.model, call_ids(request.messages))
        async with streaming(self._models, request) as deltas:
            async for delta in deltas:
                if builder is not None:
                    builder.add(delta)
                yield delta
        if builder is not None:
            message = builder.build()
            await self._hooks.tell(AfterModelCall(self._session_id, request, message))


def _deltas_of(message: Message) -> Iterator[Delta]:
    calls = 0
    for part in message.parts:
        match part:
            case TextPart():
                yield TextDelta(part.text)
            case ThinkingPart():
                yield ThinkingDelta(part.text)
            case ToolCallPart():
                yield ToolCallDelta(calls, part.id, part.name, encode(part.args).decode())
                calls += 1
            case _:
                pass  # a model returns nothing else
    usage = message.usage or Usage()  # no model was called, so there is no usage
    yield StreamEnd(message.stop_reason or ("tool_calls" if calls else "stop"), usage)


class HookedCall:
    """One call of a tool: the hooks run before it and on its result."""

    def __init__(self, spec: ToolSpec, hooks: Hooks) -> None:
        self._spec = spec
        self._hooks = hooks
        self._call: ToolCall | None = None
        """The call that the hooks allowed; None before the hooks have run."""

    @property
    def spec(self) -> ToolSpec:
        """The wrapped tool."""
        return msgspec.structs.replace(self._spec, run=self._run)

    async def _run(self, call: ToolCall) -> ToolOutput:
        _, answer = await self._hooks.ask(ToolAsked(call.session_id, call))
        if isinstance(answer, Block):
            raise ToolDenied(self._spec.name, answer.reason)
        self._call = call
        return answer if isinstance(answer, ToolOutput) else await self._spec.run(call)

    async def apply_hooks(self, run: ToolRun) -> ToolRun:
        """Return the finished `run` after hooks have changed it; a blocked call is not changed."""
        if self._call is None or not self._hooks.has("tool_result"):
            return run
        told = ToolAnswered(self._call.session_id, self._call, run.output, run.outcome)
        point, answer = await self._hooks.ask(told)
        if isinstance(answer, Block):  # by a guard that failed: no hook has checked the result
            return failed_run(self._spec.name, ToolError(self._spec.name, answer.reason))
        return run if point.output is run.output else run_of(point.output, run)
