"""Define scenarios, which are the answers of a scripted model, and choose a reply. Pure.

The choice depends on the request alone, so a process that resumes a turn gets the same reply as the
process that died. ``docs/scenarios.md`` describes the file format, and ``scenario_yaml`` reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from perdure.models.protocol import ModelRequest
from perdure.session.kinds import CONTINUE_TEXT
from perdure.session.messages import Message, StopReason, TextPart, ToolResultPart, Usage

ErrorCode = Literal[
    "rate_limited",
    "model_unavailable",
    "context_overflow",
    "credentials_refused",
    "model_refused",
    "malformed_response",
]

DEFAULT_CHUNK_CHARS = 24


class Say(msgspec.Struct, frozen=True):
    """A step that sends text of the answer."""

    text: str


class Think(msgspec.Struct, frozen=True):
    """A step that sends reasoning."""

    text: str


class ScriptedCall(msgspec.Struct, frozen=True):
    """A tool call. `json` is sent literally, valid or not; a missing `id` is generated."""

    name: str
    json: str = "{}"
    id: str | None = None


class CallTools(msgspec.Struct, frozen=True):
    """A step that sends parallel tool calls; the deltas of these calls are interleaved."""

    calls: tuple[ScriptedCall, ...]


class Wait(msgspec.Struct, frozen=True):
    """A step that pauses. Units: `seconds` are seconds."""

    seconds: float


class Fail(msgspec.Struct, frozen=True):
    """A step that makes the call fail the first `times` times that the same request is made.

    If `times` is None, the call fails every time. Each process counts the failures for itself, so a
    restarted process begins at zero.
    """

    code: ErrorCode
    reason: str = "the scenario says so"
    times: int | None = None
    retry_after_s: float | None = None
    status: int | None = None


class Cut(msgspec.Struct, frozen=True):
    """A step that breaks off the stream without its end, like a lost connection.

    `times` is as in `Fail`.
    """

    times: int | None = None


class Hang(msgspec.Struct, frozen=True):
    """A step that sends nothing more until the call is cancelled. `times` is as in `Fail`."""

    times: int | None = None


Step = Say | Think | CallTools | Wait | Fail | Cut | Hang


class When(msgspec.Struct, frozen=True):
    """Conditions on a request; all given conditions must be true. Text comparisons ignore case.

    `nth` is the number of the answer (1 + the assistant messages in the request). `round` is the
    number of the answer after the newest user message. `user_contains` refers to the newest user
    text. `after` states whether the request ends with user text or with tool results. `after_tool`
    names a tool: the request must end with tool results, and one of these results must come from
    this tool. The two conditions `last_tool_result_…` refer to the tool results at the end of the
    request. A request for a summary contains the text of a whole conversation, so it matches only
    conditions with `asks_summary`.
    """

    nth: int | None = None
    round: int | None = None
    user_contains: str | None = None
    system_contains: str | None = None
    after: Literal["user", "tool"] | None = None
    after_tool: str | None = None
    last_tool_result_contains: str | None = None
    last_tool_result_is_error: bool | None = None
    asks_summary: bool = False


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of the model.

    If `usage` is None, the reply reports a usage that is estimated from bytes; if `reports_usage`
    is False, it reports no usage.

    Units: `chunk_chars` is the number of characters in a delta; `chunk_delay_s` is the number of
    seconds between deltas.
    """

    steps: tuple[Step, ...]
    when: When | None = None
    stop_reason: StopReason | None = None
    usage: Usage | None = None
    reports_usage: bool = True
    chunk_chars: int = DEFAULT_CHUNK_CHARS
    chunk_delay_s: float = 0.0


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of the model ``scripted:<name>``.

    The reply is the first of `rules` whose conditions are true. If no rule matches, the reply is
    the item of `sequence` whose index is the number of assistant messages in the request. A request
    for a summary never gets an item of `sequence`.
    """

    name: str
    rules: tuple[Reply, ...] = ()
    sequence: tuple[Reply, ...] = ()
    context_window: int | None = None
    max_output_tokens: int | None = None


class Situation(msgspec.Struct, frozen=True):
    """The facts about a request that conditions test.

    Shape: `results` are the tool results at the end of the request, and `result_tools` are the
    names of their tools. `results` and `result_tools` are empty if the request ends with user text.
    """

    answers: int
    answers_in_turn: int
    user_text: str
    system: str
    results: tuple[ToolResultPart, ...]
    result_tools: tuple[str, ...]
    asks_summary: bool


def situation_of(request: ModelRequest, answers: int | None = None) -> Situation:
    """Return the facts about `request`.

    `answers` is the number of answers in the request; if `answers` is None, this function counts
    them.
    """
    messages = _newest_turn(request.messages)
    newest_user = _newest_user(messages)
    in_turn = messages[newest_user + 1 :]
    results = _final_results(messages)
    return Situation(
        answers=_answers(uncut(request.messages)) if answers is None else answers,
        answers_in_turn=_answers(in_turn),
        user_text=_newest_text(messages[newest_user]) if newest_user >= 0 else "",
        system=request.system or "",
        results=results,
        result_tools=tuple(_tool_of(result, request.messages) for result in results),
        asks_summary=asks_summary(request),
    )


def asks_summary(request: ModelRequest) -> bool:
    """Return whether `request` asks the model to summarize a conversation."""
    last = request.messages[-1] if request.messages else None
    text = last.text if last is not None and last.role == "user" else ""
    return "<conversation>" in text and "</conversation>" in text


def uncut(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return `messages` without interrupted parts of answers and without requests to continue.

    Of an answer that was interrupted and continued, only the last part remains.
    """
    asked = {place for place, message in enumerate(messages) if asks_to_go_on(message)}
    left_out = asked | {place - 1 for place in asked}
    return tuple(message for place, message in enumerate(messages) if place not in left_out)


def said_already(messages: Sequence[Message]) -> str:
    """Return the text of the answer that the request asks to continue.

    The result is "" if the request does not continue an answer.
    """
    parts: list[str] = []
    last = len(messages) - 1
    while last > 0 and asks_to_go_on(messages[last]):
        parts.append(messages[last - 1].text)
        last -= 2
    return "".join(reversed(parts))


def rest_of(reply: Reply, said: str) -> Reply:
    """Return the part of `reply` after the text `said`.

    If `reply` does not begin with `said`, all of `reply` is returned.
    """
    if not said:
        return reply
    text = "".join(step.text for step in reply.steps if isinstance(step, Say))
    if not text.startswith(said):
        return reply
    steps: list[Step] = []
    for step in reply.steps:
        if not said:
            steps.append(step)
        elif isinstance(step, Say):
            step_rest, said = step.text[len(said) :], said[len(step.text) :]
            steps += [Say(step_rest)] if step_rest else []
    return msgspec.structs.replace(reply, steps=tuple(steps))


def asks_to_go_on(message: Message) -> bool:
    """Return whether `message` asks the model to continue the interrupted answer before it."""
    return message.role == "user" and message.text == CONTINUE_TEXT


def _newest_turn(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages from the newest user text on, without interrupted parts of answers."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].role == "user":
            end = uncut(messages[place:])
            if end and end[0] is messages[place]:
                return end
    return uncut(messages)


def reply_to(scenario: Scenario, situation: Situation) -> Reply | None:
    """Return the reply of `scenario` in `situation`; None if the scenario has no reply."""
    for rule in scenario.rules:
        if holds(rule.when or When(), situation):
            return rule
    if situation.asks_summary or situation.answers >= len(scenario.sequence):
        return None
    return scenario.sequence[situation.answers]


def holds(when: When, situation: Situation) -> bool:
    """Return whether all conditions of `when` are true in `situation`."""
    after = "tool" if situation.results else "user"
    result_texts = [result.text for result in situation.results]
    has_error = any(result.is_error for result in situation.results) if result_texts else None
    return all(
        (
            when.nth in (None, situation.answers + 1),
            when.round in (None, situation.answers_in_turn + 1),
            _contains([situation.user_text], when.user_contains),
            _contains([situation.system], when.system_contains),
            when.after in (None, after),
            when.after_tool is None or when.after_tool in situation.result_tools,
            _contains(result_texts, when.last_tool_result_contains),
            when.last_tool_result_is_error in (None, has_error),
            when.asks_summary == situation.asks_summary,
        )
    )


def _contains(texts: Iterable[str], wanted: str | None) -> bool:
    return wanted is None or any(wanted.casefold() in text.casefold() for text in texts)


def _answers(messages: Sequence[Message]) -> int:
    return sum(message.role == "assistant" for message in messages)


def _newest_user(messages: Sequence[Message]) -> int:
    """Return the index of the newest user message; -1 if there is none."""
    places = range(len(messages) - 1, -1, -1)
    return next((place for place in places if messages[place].role == "user"), -1)


def _newest_text(message: Message) -> str:
    """Return the last text part of `message`.

    Earlier text parts can come from other messages, such as a summary, that were merged into it.
    """
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    return texts[-1] if texts else ""


def _final_results(messages: Sequence[Message]) -> tuple[ToolResultPart, ...]:
    first = len(messages)
    while first > 0 and messages[first - 1].role == "tool":
        first -= 1
    parts = [part for message in messages[first:] for part in message.parts]
    return tuple(part for part in parts if isinstance(part, ToolResultPart))


def _tool_of(result: ToolResultPart, messages: Sequence[Message]) -> str:
    if result.name is not None:
        return result.name
    calls = [call for message in uncut(messages) for call in message.tool_calls]
    return next((call.name for call in reversed(calls) if call.id == result.call_id), "")
