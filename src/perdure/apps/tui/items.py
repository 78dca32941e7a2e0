"""The items of a transcript, computed from the stored or live events of a session.

Pure. The items contain texts exactly as in the log; the widgets make them printable.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from perdure.apps.terminal.previews import NOT_SEEN, shell_run
from perdure.events.types import AnyEvent, Event, LiveEvent, Snapshot
from perdure.session.messages import attachment_in
from perdure.tools.diff import diff_of


@dataclass(eq=False)
class Said:
    """A message of the user."""

    text: str


@dataclass(eq=False)
class Sent:
    """A text file that the user sent with a message."""

    name: str
    text: str


@dataclass(eq=False)
class Answer:
    """Text of the model. While `is_open` is True, the text still grows."""

    text: str
    is_open: bool = False


@dataclass(eq=False)
class Thought:
    """Reasoning of the model. While `is_open` is True, the text still grows."""

    text: str
    is_open: bool = False


@dataclass(eq=False)
class Call:
    """A tool call. `outcome` is None while the call has no result."""

    id: str
    tool: str
    arguments: Mapping[str, object]
    outcome: str | None = None
    is_error: bool = False
    duration_ms: int | None = None
    result: str = ""
    diff: str = ""


@dataclass(eq=False)
class Remark:
    """A line that is not part of the conversation, or the text of an entry that is no message."""

    text: str


NO_RESULT = "no result"
"""The outcome of a call whose branch or turn ended before its result."""

Item: TypeAlias = Said | Sent | Answer | Thought | Call | Remark


@dataclass
class Folded:
    """The effect of one event: new items, and earlier items that it changed."""

    added: list[Item] = field(default_factory=list[Item])
    changed: list[Item] = field(default_factory=list[Item])


class ItemFold:
    """Turns events into items, in the order of the events."""

    def __init__(self) -> None:
        self._calls: dict[str, Call] = {}
        self._diffs: dict[str, str] = {}
        self._open: Answer | Thought | None = None
        self._streamed: list[Answer | Thought] = []

    def feed(self, event: AnyEvent) -> Folded:
        """Return the items that `event` adds or changes."""
        folded = Folded()
        match event:
            case LiveEvent(type="agent:token"):
                self._stream(Answer, event.text, folded)
            case LiveEvent(type="agent:reasoning"):
                self._stream(Thought, event.text, folded)
            case LiveEvent():
                pass
            case Snapshot():
                self._catch_up(event, folded)
            case Event():
                self._durable(event, folded)
        return folded

    def _stream(self, kind: type[Answer | Thought], text: str, folded: Folded) -> None:
        if not text:
            return
        if isinstance(self._open, kind):
            self._open.text += text
            folded.changed.append(self._open)
            return
        self._close(folded)
        self._open = kind(text, is_open=True)
        self._streamed.append(self._open)
        folded.added.append(self._open)

    def _catch_up(self, snapshot: Snapshot, folded: Folded) -> None:
        """Show the part of an answer that was streamed before this process watched the session."""
        known = "".join(each.text for each in self._streamed if isinstance(each, Answer))
        self._stream(Answer, snapshot.partial.text.removeprefix(known), folded)

    def _close(self, folded: Folded) -> None:
        if self._open is not None:
            self._open.is_open = False
            folded.changed.append(self._open)
            self._open = None

    def _durable(self, event: Event, folded: Folded) -> None:
        payload = event.payload
        match event.type:
            case "agent:message":
                self._message(payload, folded)
            case "agent:tool_call" | "agent:tool_result":
                self._tool_event(payload, folded)
            case "inbox:question":
                if isinstance(diff := payload.get("diff"), str):
                    self._diffs[_key(payload.get("arguments"))] = diff
            case "session:turn_completed" | "session:cancelled":
                self._end(payload, folded)
            case _:
                if (text := _remark_of(event.type, payload)) is not None:
                    folded.added.append(Remark(text))

    def _message(self, payload: Mapping[str, object], folded: Folded) -> None:
        parts = [cast("Mapping[str, object]", part) for part in _items(payload.get("parts"))]
        match payload.get("role"):
            case "user":
                folded.added += _said(parts)
            case "assistant":
                self._answer(parts, folded)
                if error := payload.get("error"):
                    folded.added.append(Remark(f"({payload.get('stopReason')}: {error})"))
            case "tool":
                for part in parts:
                    self._result(part, folded)
            case _:
                pass

    def _answer(self, parts: list[Mapping[str, object]], folded: Folded) -> None:
        """Add the parts of the answer that were not streamed, and its tool calls."""
        self._close(folded)
        is_streamed, self._streamed = bool(self._streamed), []
        for part in parts:
            text = str(part.get("text") or "")
            if part.get("type") == "tool_call":
                arguments = cast("Mapping[str, object]", part.get("args") or {})
                self._call(str(part.get("id")), str(part.get("name")), arguments, folded)
            elif part.get("type") == "thinking" and not is_streamed:
                folded.added.append(Thought(text or "(the provider hides it)"))
            elif part.get("type") == "text" and text and not is_streamed:
                folded.added.append(Answer(text))

    def _call(self, id: str, tool: str, arguments: Mapping[str, object], folded: Folded) -> Call:
        call = self._calls.get(id)
        if call is None or call.outcome is not None:
            call = self._calls[id] = Call(id, tool, arguments)
            folded.added.append(call)
        return call

    def _tool_event(self, payload: Mapping[str, object], folded: Folded) -> None:
        id, outcome = str(payload.get("callId")), payload.get("outcome")
        arguments = cast("Mapping[str, object]", payload.get("toolInput") or {})
        known = self._calls.get(id)
        if known is None or (outcome is None and known.outcome is not None):
            known = self._call(id, str(payload.get("toolId")), arguments, folded)
        if outcome is None:
            return
        known.outcome, known.is_error = str(outcome), not payload.get("success")
        took = payload.get("durationMs")
        known.duration_ms = took if isinstance(took, int) else None
        known.result = known.result or str(payload.get("outputSummary") or "")
        if not known.is_error:
            known.diff = self._diffs.pop(_key(known.arguments), "") or _diff_in(known)
        folded.changed.append(known)

    def _result(self, part: Mapping[str, object], folded: Folded) -> None:
        call = self._calls.get(str(part.get("callId")))
        if call is None:
            name = part.get("name") or "a tool"
            folded.added.append(Remark(f"{name}: {part.get('text')}"))
            return
        call.result = str(part.get("text") or "")
        if call.outcome is None:
            call.outcome = "failed" if part.get("isError") else "done"
            call.is_error = bool(part.get("isError"))
            call.diff = "" if call.is_error else _diff_in(call)
        folded.changed.append(call)

    def settle(self) -> list[Item]:
        """End the calls that have no result, because no turn is running; return these calls."""
        left: list[Item] = []
        for call in self._calls.values():
            if call.outcome is None:
                call.outcome = NO_RESULT
                left.append(call)
        return left

    def _end(self, payload: Mapping[str, object], folded: Folded) -> None:
        self._close(folded)
        self._streamed = []
        folded.changed += self.settle()
        reason = payload.get("stopReason")
        if reason not in ("stop", "error", None):
            folded.added.append(Remark(f"(the turn ended: {reason})"))


def argument_line(call: Call) -> str:
    """Return the arguments of `call` on one line: the first text argument, or all as JSON."""
    values = [value for value in call.arguments.values() if isinstance(value, str)]
    if values and (len(call.arguments) == 1 or call.diff or "\n" in "".join(values)):
        return values[0]
    return json.dumps(call.arguments, ensure_ascii=False) if call.arguments else ""


def argument_lines(call: Call) -> Iterator[str]:
    """Return the arguments of `call`, each below its name; a diff replaces texts of many lines."""
    for name, value in call.arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if call.diff and "\n" in text:
            continue
        head, *rest = text.split("\n")
        yield f"{name} = {head}" if not rest else f"{name}:"
        yield from (f"  {line}" for line in ([head, *rest] if rest else ()))


def _diff_in(call: Call) -> str:
    """Return the change that the arguments of a successful write describe."""
    match call.arguments:
        case {"old_text": str(before), "new_text": str(after)}:
            return diff_of(before, after)
        case {"path": str(), "content": str(content)}:
            return "\n".join(f"+{line}" for line in content.rstrip("\n").split("\n"))
        case _:
            return ""


def _remark_of(type_: str, payload: Mapping[str, object]) -> str | None:
    match type_:
        case "session:compacted":
            return "older messages are now sent as a summary; the log keeps them"
        case "session:trimmed" if payload.get("droppedMessageCount"):
            return f"{payload['droppedMessageCount']} old messages did not fit"
        case "session:branch_summarized":
            return f"summary of the branch that was left: {payload.get('summary', '')}"
        case "session:model_changed":
            return f"model: {payload.get('model')}"
        case "session:thinking_changed":
            return f"thinking level: {payload.get('level')}"
        case "session:custom_message" if payload.get("isDisplayed", True):
            return _custom_text(payload)
        case _:
            return None


def _custom_text(payload: Mapping[str, object]) -> str:
    """Return the text of a custom message.

    If the message records a shell command of the user, the text is the command with its output.
    """
    parts = [cast("Mapping[str, object]", part) for part in _items(payload.get("parts"))]
    text = "\n".join(filter(None, map(_part_text, parts)))
    is_seen = payload.get("inContext", True)
    if (run := shell_run(payload.get("customType"), payload.get("details"))) is not None:
        command, output = run
        text = f"{'!' if is_seen else '!!'} {command}\n{output or '(no output)'}"
    return text if is_seen else f"{text}\n{NOT_SEEN}"


def _said(parts: list[Mapping[str, object]]) -> Iterator[Item]:
    """Yield the message of `parts`, then the text files that the user sent with it."""
    texts = [text for part in parts if (text := _part_text(part))]
    files = {n: found for n, text in enumerate(texts) if n and (found := attachment_in(text))}
    yield Said("\n\n".join(text for n, text in enumerate(texts) if n not in files))
    for name, content in files.values():
        yield Sent(name, content)


def _items(value: object) -> tuple[object, ...]:
    return tuple(cast("list[object]", value)) if isinstance(value, list | tuple) else ()


def _part_text(part: Mapping[str, object]) -> str:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "media"}:
            return f"[{part.get('name') or part.get('mimeType')}, {part.get('byteLength')} bytes]"
        case _:
            return ""


def _key(arguments: object) -> str:
    return json.dumps(arguments, sort_keys=True, default=str)
