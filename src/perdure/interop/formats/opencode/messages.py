"""Convert opencode's message parts to perdure's messages.

An opencode answer is one record with all its steps: thinking and text, calls with their results,
and the usage of each step. In perdure, each step becomes an answer and a message with the results
of the answer's calls. Only the stored copy of the imported file contains snapshots, patches and
metadata of parts.
"""

from __future__ import annotations

from collections.abc import Iterable

from perdure.codecs.fields import (
    Fields,
    count_in,
    fields_of,
    flag_in,
    list_in,
    name_in,
    number_in,
    object_in,
    text_in,
)
from perdure.codecs.media import Media, unknown_part
from perdure.codecs.shared_keys import model_name
from perdure.session.kinds import CustomMessage
from perdure.session.messages import (
    MICROCENTS_PER_DOLLAR,
    MediaPart,
    Message,
    Part,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)

QUIET = frozenset(
    {"step-start", "step-finish", "snapshot", "patch", "agent", "retry", "compaction"}
)
"""Types of parts that do not become content of a message."""

_MEDIA = ("image/", "audio/", "video/", "application/pdf")
_ABORTED = "MessageAbortedError"
_STOP_REASONS: dict[str | None, StopReason] = {
    "stop": "stop",
    "length": "length",
    "tool-calls": "tool_calls",
    "content-filter": "content_filter",
    "error": "error",
}


def said_by_person(parts: Iterable[object], media: Media) -> Message | CustomMessage | None:
    """Return the user message in `parts`; None if it contains nothing that a model gets."""
    found: list[Part] = []
    is_theirs = False
    for item in parts:
        fields = fields_of(item) or {}
        if text_in(fields, "type") in QUIET or flag_in(fields, "ignored"):
            continue
        found.append(_part(item, fields, media))
        is_theirs = is_theirs or not flag_in(fields, "synthetic")
    if not found:
        return None
    if not is_theirs:
        return CustomMessage("opencode:synthetic", tuple(found), is_displayed=False)
    return Message("user", tuple(found))


def summary_in(parts: Iterable[object]) -> str:
    """Return the joined text of `parts`, which are the parts of a compaction summary."""
    found = (fields_of(part) or {} for part in parts)
    return "\n\n".join(
        text
        for part in found
        if text_in(part, "type") == "text" and (text := text_in(part, "text"))
    )


def steps_of(info: Fields, parts: list[object], media: Media) -> list[Message]:
    """Return the answers in a record, each followed by the message with its tool results.

    Shape: the list has at least one answer, which has no parts if the record has no content.
    """
    steps: list[Message] = []
    step = _Step(info, media)
    for item in parts:
        fields = fields_of(item) or {}
        if text_in(fields, "type") == "step-finish":
            steps += step.messages(fields)
            step = _Step(info, media)
        else:
            step.take(item, fields)
    if not step.is_empty or not steps:
        steps += step.messages(info if not steps else {}, is_last=True)
    return steps


class _Step:
    """One model call and the results of its tools."""

    def __init__(self, info: Fields, media: Media) -> None:
        self._info = info
        self._media = media
        self._said: list[Part] = []
        self._results: list[ToolResultPart] = []

    @property
    def is_empty(self) -> bool:
        """Return whether the step has no content."""
        return not self._said

    def take(self, item: object, fields: Fields) -> None:
        """Add the part `item`, whose parsed fields are `fields`."""
        match text_in(fields, "type"):
            case "reasoning":
                self._said.append(ThinkingPart(text_in(fields, "text") or ""))
            case "tool" if name_in(fields, "callID") and name_in(fields, "tool"):
                self._take_call(fields)
            case str(kind) if kind in QUIET:
                return
            case _:
                self._said.append(_part(item, fields, self._media))

    def _take_call(self, fields: Fields) -> None:
        call_id, name = fields["callID"], fields["tool"]
        state = object_in(fields, "state") or {}
        self._said.append(ToolCallPart(call_id, name, object_in(state, "input") or {}))
        failure = text_in(state, "error")
        text = text_in(state, "output") if failure is None else failure
        if text is None:
            return  # it was still running
        attached = (fields_of(each) or {} for each in list_in(state, "attachments") or ())
        media = tuple(part for each in attached if (part := _file(each, self._media)) is not None)
        is_error = failure is not None
        self._results.append(
            ToolResultPart(call_id, text, is_error=is_error, name=name, media=media)
        )

    def messages(self, end: Fields, *, is_last: bool = False) -> list[Message]:
        """Return the messages of the step. `end` contains the usage and stop reason of the step."""
        info, error = self._info, None
        reason = _STOP_REASONS.get(text_in(end, "reason") or text_in(end, "finish"))
        failure = object_in(info, "error")
        if is_last and failure is not None:
            data = object_in(failure, "data") or {}
            error = name_in(data, "message") or name_in(failure, "name")
            reason = "aborted" if text_in(failure, "name") == _ABORTED else "error"
        answer = Message(
            "assistant",
            tuple(self._said),
            model=model_name(name_in(info, "providerID"), name_in(info, "modelID")),
            stop_reason=reason,
            usage=usage_of(end),
            error=error,
        )
        return [answer, Message("tool", tuple(self._results))] if self._results else [answer]


def usage_of(end: Fields) -> Usage | None:
    """Return the usage of a step; None if opencode counted no tokens."""
    tokens = object_in(end, "tokens") or {}
    cache = object_in(tokens, "cache") or {}
    read, written = count_in(cache, "read"), count_in(cache, "write")
    taken, total = count_in(tokens, "input"), count_in(tokens, "total")
    # Whether output includes reasoning changed between versions; the total shows which.
    output = max(count_in(tokens, "output"), total - taken - read - written)
    dollars = number_in(end, "cost")
    is_priced = dollars is not None and 0 < dollars < 10**7
    cost = round(dollars * MICROCENTS_PER_DOLLAR) if dollars is not None and is_priced else None
    usage = Usage(taken, output, read, written, cost)
    return usage if usage.total_tokens else None


def subagents_of(parts: Iterable[object]) -> Fields | None:
    """Return the ids of the sessions that tool calls in `parts` started as subagents."""
    for item in parts:
        state = object_in(fields_of(item) or {}, "state") or {}
        session = name_in(object_in(state, "metadata") or {}, "sessionId")
        if session is not None:
            return {"subagent": session}
    return None


def _part(item: object, fields: Fields, media: Media) -> Part:
    text = text_in(fields, "text")
    if text_in(fields, "type") == "text" and text is not None:
        return TextPart(text)
    prompt = text_in(fields, "prompt")
    if text_in(fields, "type") == "subtask" and prompt is not None:
        return TextPart(prompt)
    return _file(fields, media) or unknown_part(item)


def _file(fields: Fields, media: Media) -> MediaPart | None:
    kind, url = name_in(fields, "mime"), name_in(fields, "url")
    if kind is None or url is None or not kind.startswith(_MEDIA):
        return None
    return media.from_address(url, kind) if url.startswith("data:") else None
