"""`perdure.testing`: models with scripted and recorded answers, for tests of programs.

    model = perdure.testing.ScriptedModel(["Hello!", assistant(tool_call("c1", "add", {"a": 1}))])
    async with perdure.Runtime(store, agents=[agent], models=model) as runtime: ...

The models need no network, no key and no configuration. ``docs/guides/testing.md`` shows whole
tests.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable

import msgspec

from perdure.client.clock import SystemClock
from perdure.client.open import open as open_store
from perdure.errors import (
    ContextOverflow,
    CredentialsRefused,
    FormatError,
    MalformedResponse,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
    WrongArgument,
)
from perdure.models.protocol import Delta, ModelInfo, ModelRequest
from perdure.models.scenario import (
    CallTools,
    ErrorCode,
    Fail,
    Reply,
    Say,
    Scenario,
    ScriptedCall,
    Step,
    Think,
    When,
)
from perdure.models.scripted import ScriptedModel as ScenarioModel
from perdure.session.messages import Message, TextPart, ThinkingPart, ToolCallPart

__all__ = ["Answer", "ModelRequest", "ScriptedModel", "recorded_answers"]

Answer = str | Message | ModelError
"""One answer of a scripted model: a text, a message of the assistant, or an error to raise."""

SUMMARY = (
    "A scripted model wrote this summary. It stands in for the earlier part of a conversation."
)
_END = Reply(steps=(Fail("model_refused", "the test gives ScriptedModel no further answer"),))
_CODES: tuple[tuple[type[ModelError], ErrorCode], ...] = (
    (RateLimited, "rate_limited"),
    (ModelUnavailable, "model_unavailable"),
    (ContextOverflow, "context_overflow"),
    (MalformedResponse, "malformed_response"),
    (CredentialsRefused, "credentials_refused"),
    (ModelRefused, "model_refused"),
)


class ScriptedModel:
    """A model for unit tests that gives `answers` in order; pass it as ``Runtime(models=…)``.

    An answer is a text, an `assistant` message (with `thinking` and `tool_call` parts), or a
    ModelError. The number of earlier answers in the conversation selects the answer: the first
    model call gets the first answer. Each session starts with the first answer, and a resumed turn
    gets the same answer as without the interruption. A ModelError among the answers is raised once,
    and the next call gets the next answer. If the last answer is an error, every later call raises
    this error. After the last answer, the model rejects requests. `summary` is the answer to a
    request for a compaction summary. `requests` are all requests that the model received so far,
    oldest first. The model answers under every model name, for example ``Agent(model="test:any")``.
    Raises: WrongArgument if an answer has another type, is a message of another role, or contains
    media.
    """

    def __init__(
        self,
        answers: Iterable[Answer],
        *,
        summary: str = SUMMARY,
        context_window: int | None = None,
    ) -> None:
        replies = _replies(answers)
        self.requests: list[ModelRequest] = []
        self._answers = len(replies)
        self._scenario = Scenario(
            name="",
            rules=(Reply(steps=(Say(summary),), when=When(asks_summary=True)),),
            sequence=(*replies, _END),
            context_window=context_window,
        )
        self._models: dict[str, ScenarioModel] = {}

    def info(self, model: str) -> ModelInfo:
        """Return the properties of the model."""
        return ModelInfo(model, self._scenario.context_window)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Stream the answer to `request`.

        Raises: ModelError if the answer is an error, or if no answer is left.
        """
        self.requests.append(request)
        name = request.model.partition(":")[2] or request.model
        if name not in self._models:
            named = msgspec.structs.replace(self._scenario, name=name)
            self._models[name] = ScenarioModel(named, clock=SystemClock())
        async for delta in self._models[name].stream(request):
            yield delta

    def __repr__(self) -> str:
        return f"<ScriptedModel answers={self._answers} requests={len(self.requests)}>"


async def recorded_answers(file: str | os.PathLike[str]) -> list[Message]:
    """Return the model's answers in a session file, in order, for a `ScriptedModel`.

    The file contains one session, from `Session.export` or from any other program whose sessions
    perdure imports. Only the answers on the session's current branch are returned.
    Raises: FormatError if the file cannot be read, or if it contains no session or several
    sessions.
    """
    async with open_store("memory:") as store:
        imported = await store.import_files([file])
        if imported.errors:
            raise imported.errors[0]
        if len(imported.sessions) != 1:
            raise FormatError(
                os.fspath(file), f"one session is needed, not {len(imported.sessions)}"
            )
        session = await store.open(imported.sessions[0])
        said = await session.messages()
    return [message for message in said if message.role == "assistant" and message.parts]


def _replies(answers: Iterable[Answer]) -> list[Reply]:
    """Return one reply for each text or message, with the errors before it.

    Errors after the last text or message become one more reply.
    """
    if isinstance(answers, str):
        raise WrongArgument("ScriptedModel takes a list of answers, not str", argument="answers")
    replies: list[Reply] = []
    errors: list[Step] = []
    for answer in answers:
        if isinstance(answer, ModelError):
            errors.append(_failure(answer))
        elif isinstance(answer, str):
            replies.append(Reply(steps=(*errors, Say(answer))))
            errors = []
        else:
            replies.append(_reply(answer, errors))
            errors = []
    if errors:
        last = msgspec.structs.replace(errors.pop(), times=None)
        replies.append(Reply(steps=(*errors, last)))
    return replies


def _reply(answer: Message, before: list[Step]) -> Reply:
    if not isinstance(answer, Message):  # pyright: ignore[reportUnnecessaryIsInstance] - tests are not always type-checked
        raise WrongArgument(
            f"ScriptedModel takes texts, assistant messages and ModelErrors as answers, not "
            f"{type(answer).__name__}",
            argument="answers",
        )
    if answer.role != "assistant":
        raise WrongArgument(
            f"ScriptedModel takes messages of the assistant as answers, not one of {answer.role}: "
            "use perdure.assistant(…)",
            argument="answers",
        )
    steps: list[Step] = []
    calls: list[ScriptedCall] = []
    for part in answer.parts:
        if isinstance(part, ToolCallPart):
            json = msgspec.json.encode(part.args).decode()
            calls.append(ScriptedCall(part.name, json, part.id))
        elif isinstance(part, TextPart):
            steps.append(Say(part.text))
        elif isinstance(part, ThinkingPart):
            steps.append(Think(part.text))
        else:
            raise WrongArgument(
                f"ScriptedModel cannot answer with a {type(part).__name__}: use text, thinking and "
                "tool_call parts",
                argument="answers",
            )
    if calls:
        steps.append(CallTools(tuple(calls)))
    return Reply(steps=(*before, *steps), stop_reason=answer.stop_reason, usage=answer.usage)


def _failure(error: ModelError) -> Fail:
    code: ErrorCode | None = next((code for kind, code in _CODES if isinstance(error, kind)), None)
    if code is None:
        raise WrongArgument(
            f"ScriptedModel cannot raise {type(error).__name__}: use RateLimited, "
            "ModelUnavailable, ContextOverflow, CredentialsRefused, ModelRefused or "
            "MalformedResponse",
            argument="answers",
        )
    return Fail(
        code,
        error.reason,
        times=1,
        retry_after_s=error.retry_after_s if isinstance(error, RateLimited) else None,
        status=error.status if isinstance(error, ModelRefused) else None,
    )
