"""The scripted model, which answers from scenarios without a network; the default is ``echo``.

The scripted model can also play scenario files: ``scripted:trip.yaml`` plays the scenario in
``trip.yaml``. A scenario file is read at the first use of its scenario, and again after the file
has changed.

The reply to a request depends only on the request (``scenario``). The model remembers how often a
step with a failure count has failed for each request. Every request repeats the earlier messages of
its conversation, so the model counts each message once and remembers the counts. An answer late in
a conversation therefore takes no longer than an early one. A new process counts the messages again
and gets the same counts.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import msgspec

from perdure.errors import (
    ConfigError,
    ContextOverflow,
    CredentialsRefused,
    MalformedResponse,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
)
from perdure.models.echo import NAME as ECHO
from perdure.models.echo import echo
from perdure.models.protocol import (
    Delta,
    ModelInfo,
    ModelRequest,
    StreamEnd,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from perdure.models.scenario import (
    CallTools,
    Cut,
    Fail,
    Hang,
    Reply,
    Say,
    Scenario,
    ScriptedCall,
    Think,
    Wait,
    asks_summary,
    asks_to_go_on,
    reply_to,
    rest_of,
    said_already,
    situation_of,
)
from perdure.session.clock import Clock
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)
from perdure.session.sequences import Joined

BYTES_PER_TOKEN = 4
MEDIA_BYTES = 4_800

MOST_REMEMBERED = 16
"""Number of conversations whose beginning is remembered."""

_LEAST_REMEMBERED = 32
"""The counts of a conversation with fewer messages are not remembered."""

_LARGE_BYTES = 65_536
"""If a request's newest messages have at least this size, they are counted in a thread."""

_MOST_ANEW = 4
"""Every request counts at least this many of its last messages anew; in long conversations more."""

_NAME_BYTES = 6
_SCENARIO_YAML = "perdure.models.scenario_yaml"
_encode = msgspec.json.Encoder().encode


class ScriptedModel:
    """A `ModelClient` for the models ``scripted:<name of a scenario>`` and ``scripted:echo``.

    With `reads_files`, a name that ends in ``.yaml`` or ``.yml`` is the path of a scenario file.
    """

    def __init__(self, *scenarios: Scenario, clock: Clock, reads_files: bool = False) -> None:
        self._scenarios = {scenario.name: scenario for scenario in scenarios}
        self._reads_files = reads_files
        self._files: dict[str, tuple[int, Scenario]] = {}
        self._clock = clock
        self._hearing = MessageCounter()
        self._happened: dict[str, Counter[tuple[str, int]]] = {}

    def info(self, model: str) -> ModelInfo:
        try:
            scenario = self.require(model)
        except ConfigError:
            scenario = None
        if scenario is None:
            return ModelInfo(model)
        return ModelInfo(model, scenario.context_window, scenario.max_output_tokens)

    def require(self, model: str) -> Scenario | None:
        """Return the scenario of `model`, or None for ``echo``.

        Raises: ConfigError if the scenario is unknown, if its file cannot be read, or if the file
        has faults (listed with their lines).
        """
        name = _name_of(model)
        if self._reads_files and name.endswith((".yaml", ".yml")):
            return self._in_file(Path(name).expanduser(), model)
        if name in (ECHO, *self._scenarios):
            return self._scenarios.get(name)
        known = ", ".join(sorted({ECHO, *self._scenarios}))
        raise ConfigError(f"unknown scenario; available: {known}")

    def _in_file(self, file: Path, model: str) -> Scenario:
        changed_ns = file.stat().st_mtime_ns if file.is_file() else 0
        read_ns, scenario = self._files.get(model, (None, None))
        if scenario is None or read_ns != changed_ns:
            # Imported lazily: only file scenarios need a YAML library.
            scenario = importlib.import_module(_SCENARIO_YAML).load_scenario(file)
            self._files[model] = changed_ns, scenario
            self._happened.pop(model, None)  # a changed scenario fails from the beginning again
        return scenario

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        try:
            scenario = self.require(request.model)  # before the thread starts: it may reset counts
        except ConfigError as error:
            raise ModelRefused(request.model, str(error)) from error
        happened = self._happened.setdefault(request.model, Counter())
        if sum(map(_bytes_of, self._hearing.uncounted(request.messages))) < _LARGE_BYTES:
            heard, reply = self._answered(request, scenario)
        else:
            heard, reply = await asyncio.to_thread(self._answered, request, scenario)
        progress = _Progress(reply, heard)
        for number, step in enumerate(reply.steps):
            if isinstance(step, Fail | Cut | Hang):
                if not _happens(happened, (heard.name, number), step.times):
                    continue
                if isinstance(step, Cut):
                    return
                if isinstance(step, Hang):
                    await self._hang(request, has_begun=progress.has_begun)
                else:
                    raise _error_of(step, request.model)
            elif isinstance(step, Wait):
                await self._clock.sleep(step.seconds)
            else:
                for delta in progress.deltas_of(step):
                    # Yield to the loop between two deltas, as a network does: a caller can be
                    # cancelled, and other tasks run.
                    await asyncio.sleep(0)
                    await self._clock.sleep(reply.chunk_delay_s)
                    yield delta
        yield progress.final_delta(request)

    def _answered(self, request: ModelRequest, scenario: Scenario | None) -> tuple[Heard, Reply]:
        heard = self._hearing.count_messages(request.messages)
        reply = _reply_of(scenario, request, heard)
        return heard, rest_of(reply, said_already(request.messages))

    async def _hang(self, request: ModelRequest, *, has_begun: bool) -> None:
        """Send nothing until the request's timeout, or forever if the request has no timeout.

        Raises: ModelUnavailable at the timeout.
        """
        name = "stream_idle_timeout_s" if has_begun else "first_byte_timeout_s"
        timeout_s: float | None = getattr(request, name)
        while timeout_s is None:
            await asyncio.Event().wait()
        await self._clock.sleep(timeout_s)
        raise ModelUnavailable(request.model, f"it sent no byte for {timeout_s:g} s ({name})")


def _happens(happened: Counter[tuple[str, int]], place: tuple[str, int], times: int | None) -> bool:
    """Return whether the step at `place` happens now; it happens at most `times` times."""
    if times is None:
        return True
    happened[place] += 1
    return happened[place] <= times


def _reply_of(scenario: Scenario | None, request: ModelRequest, heard: Heard) -> Reply:
    if scenario is None:
        return echo(request)
    window = scenario.context_window
    if window is not None and (used := estimated_tokens(request, heard)) > window:
        reason = f"{used} tokens do not fit a window of {window}"
        raise ContextOverflow(request.model, reason, used, window)
    reply = reply_to(scenario, situation_of(request, heard.answers))
    if reply is not None:
        return reply
    if asks_summary(request):
        return echo(request)
    raise ModelRefused(request.model, "the scenario has no reply for this request")


class _Progress:
    """The progress of one reply: the bytes sent so far, and the numbers and ids of its calls."""

    def __init__(self, reply: Reply, heard: Heard) -> None:
        self._reply = reply
        self._heard = heard
        self._calls = 0
        self._sent_bytes = 0

    @property
    def has_begun(self) -> bool:
        """Whether the reply has sent any bytes."""
        return self._sent_bytes > 0

    def deltas_of(self, step: Say | Think | CallTools) -> Iterator[Delta]:
        size = self._reply.chunk_chars
        if isinstance(step, CallTools):
            yield from self._interleaved(step.calls, size)
            return
        self._sent_bytes += len(step.text.encode())
        for piece in _pieces(step.text, size):
            yield TextDelta(piece) if isinstance(step, Say) else ThinkingDelta(piece)

    def _interleaved(self, calls: Sequence[ScriptedCall], size: int) -> Iterator[Delta]:
        open_calls: list[tuple[int, Iterator[str]]] = []
        for call in calls:
            index, self._calls = self._calls, self._calls + 1
            self._sent_bytes += len(call.name) + len(call.json.encode())
            yield ToolCallDelta(index, call.id or f"call_{self._heard.name}_{index}", call.name)
            open_calls.append((index, _pieces(call.json, size)))
        while open_calls:
            for place in list(open_calls):
                index, pieces = place
                piece = next(pieces, None)
                if piece is None:
                    open_calls.remove(place)
                else:
                    yield ToolCallDelta(index, json=piece)

    def final_delta(self, request: ModelRequest) -> StreamEnd:
        reply = self._reply
        reason = reply.stop_reason or ("tool_calls" if self._calls else "stop")
        if not reply.reports_usage:
            return StreamEnd(reason)
        return StreamEnd(reason, reply.usage or self._estimated(request))

    def _estimated(self, request: ModelRequest) -> Usage:
        return Usage(estimated_tokens(request, self._heard), _tokens(self._sent_bytes))


# Heard messages ---------------------------------------------------------------------------------


class Heard:
    """Counts over the messages of a request, such as the number of answers.

    A `Heard` is immutable: `and_then` returns a new `Heard`.
    Units: `size_bytes` is in bytes.
    """

    def __init__(self) -> None:
        self.size_bytes = 0
        self._answers_before = 0
        self._last: Message | None = None
        self._said = hashlib.blake2b(b"[", digest_size=_NAME_BYTES)

    @property
    def answers(self) -> int:
        """The number of answers, without interrupted parts that were continued."""
        return self._answers_before + (self._last is not None and self._last.role == "assistant")

    @property
    def name(self) -> str:
        """A short name of the counted messages, which depends only on their content."""
        said = self._said.copy()
        said.update(b"]")
        return said.hexdigest()

    def and_then(self, more: Sequence[Message]) -> Heard:
        """Return the counts over the messages so far and `more`."""
        if not more:
            return self
        longer = Heard()
        longer.size_bytes = self.size_bytes + sum(map(_bytes_of, more))
        before = self._last
        longer._answers_before = self._answers_before
        for message in more:
            is_answer = before is not None and before.role == "assistant"
            longer._answers_before += is_answer and not asks_to_go_on(message)
            before = message
        longer._last = before
        longer._said = self._said.copy()
        for number, message in enumerate(more):
            if number or self._last is not None:
                longer._said.update(b",")
            longer._said.update(_encode(_with_digests(message)))
        return longer


def _with_digests(message: Message) -> Message:
    """Return `message` with digests in place of long texts, so that no long text is encoded."""
    if all(len(getattr(part, "text", "")) < _LARGE_BYTES for part in message.parts):
        return message
    return msgspec.structs.replace(message, parts=tuple(map(_with_digest, message.parts)))


def _with_digest(part: Part) -> Part:
    if not isinstance(part, (TextPart, ThinkingPart, ToolResultPart)):
        return part
    if len(part.text) < _LARGE_BYTES:
        return part
    digest = hashlib.sha256()
    for start in range(0, len(part.text), _LARGE_BYTES):
        digest.update(part.text[start : start + _LARGE_BYTES].encode())
    return msgspec.structs.replace(part, text=digest.hexdigest())


class MessageCounter:
    """Counts the messages of requests, for many conversations at the same time."""

    def __init__(self) -> None:
        # By the identity of their first message, which is referenced here and so stays unique.
        self._requests: dict[int, _Beginning] = {}

    def uncounted(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the last of `messages`: those that are probably not counted yet, at most 32."""
        _, upto, _ = self._requests.get(id(messages[0]), _NOTHING) if messages else _NOTHING
        return messages[max(upto, len(messages) - _LEAST_REMEMBERED) :]

    def count_messages(self, messages: Sequence[Message]) -> Heard:
        """Count `messages`; return the counts."""
        if len(messages) < _LEAST_REMEMBERED:
            return Heard().and_then(messages)
        known, upto, heard = self._requests.pop(id(messages[0]), _NOTHING)
        if not _begin_with(messages, known, upto):
            known, upto, heard = _NOTHING
        # The end of a request is rebuilt for the next one.
        lasting = len(messages) - min(_MOST_ANEW + len(messages) // 500, _LEAST_REMEMBERED)
        if lasting > upto:
            upto, heard = lasting, heard.and_then(messages[upto:lasting])
        self._requests[id(messages[0])] = messages, upto, heard
        if len(self._requests) > MOST_REMEMBERED:
            self._requests.pop(next(iter(self._requests)), None)
        return heard.and_then(messages[upto:])


_Beginning = tuple[Sequence[Message], int, Heard]
"""The messages of a request, how many of them are counted, and the counts."""

_NOTHING: _Beginning = (), 0, Heard()


def _begin_with(messages: Sequence[Message], known: Sequence[Message], upto: int) -> bool:
    """Return whether `messages` begin with the first `upto` of `known`.

    The comparison copies almost no message.
    """
    if isinstance(messages, Joined) and isinstance(known, Joined):
        return messages.agrees(known, upto)
    if isinstance(messages, tuple) and isinstance(known, tuple):
        try:
            if known <= messages:
                return True
        except TypeError:  # they differ, and messages cannot be ordered
            pass
    return tuple(messages[:upto]) == tuple(known[:upto])


def estimated_tokens(request: ModelRequest, heard: Heard | None = None) -> int:
    """Estimate the tokens of `request` from its bytes; `heard` are the counts over its messages."""
    heard = Heard().and_then(request.messages) if heard is None else heard
    total = len((request.system or "").encode())
    total += sum(len(msgspec.json.encode(tool)) for tool in request.tools)
    return _tokens(total + heard.size_bytes)


def _bytes_of(message: Message) -> int:
    total = 0
    for part in message.parts:
        if isinstance(part, (TextPart, ThinkingPart)):
            total += len(part.text) if part.text.isascii() else len(part.text.encode())
        elif isinstance(part, ToolCallPart):
            total += len(part.name) + len(_encode(part.args))
        elif isinstance(part, ToolResultPart):
            total += len(part.text.encode()) + MEDIA_BYTES * len(part.media)
        elif isinstance(part, MediaPart):
            total += MEDIA_BYTES
    return total


def _tokens(count_bytes: int) -> int:
    return -(-count_bytes // BYTES_PER_TOKEN)


def _error_of(step: Fail, model: str) -> ModelError:
    match step.code:
        case "rate_limited":
            return RateLimited(model, step.reason, step.retry_after_s)
        case "model_unavailable":
            return ModelUnavailable(model, step.reason)
        case "context_overflow":
            return ContextOverflow(model, step.reason)
        case "credentials_refused":
            return CredentialsRefused(model, step.reason, step.status)
        case "model_refused":
            return ModelRefused(model, step.reason, step.status)
        case "malformed_response":
            return MalformedResponse(model, step.reason)


def _name_of(model: str) -> str:
    return model.partition(":")[2] or model


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))
