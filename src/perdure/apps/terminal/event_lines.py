"""Prints the events of a turn: streamed text, one line per tool call, remarks.

Text that was streamed is not printed again when its entry arrives. Text that was not streamed is
printed when its entry arrives.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal, Protocol, cast

from perdure.apps.terminal.output import remark, show, show_json
from perdure.apps.terminal.style import Meaning, Style
from perdure.apps.terminal.text import one_line, safe
from perdure.events.projection import wire
from perdure.events.types import AnyEvent, Event, LiveEvent, Snapshot

_ARGUMENT_CELLS = 60

_Channel = Literal["text", "thinking"]


class Teller(Protocol):
    """Prints the events of a turn."""

    def tell(self, event: AnyEvent) -> None:
        """Print `event`."""
        ...

    def remark(self, text: str) -> None:
        """Print a remark, which is not an event, on its own line."""
        ...


class JsonTeller:
    """Prints each event immediately, as a line of JSON in the wire format."""

    def tell(self, event: AnyEvent) -> None:
        """Write the event."""
        show_json(wire(event), is_flushed=True)

    def remark(self, text: str) -> None:
        """Print nothing, because remarks are not part of the event stream."""


class QuietTeller:
    """Prints no events, for callers that need only the answer."""

    def tell(self, event: AnyEvent) -> None:
        """Print nothing."""

    def remark(self, text: str) -> None:
        """Print the remark to stderr."""
        remark(text)


class TextTeller:
    """Prints events for people.

    Errors are not printed here, because the code that awaits the turn reports them.
    """

    def __init__(self, style: Style, width: int) -> None:
        self._style = style
        self._width = width
        self._open: _Channel | None = None
        self._streamed = ""

    def tell(self, event: AnyEvent) -> None:
        """Print the new content of the event."""
        match event:
            case LiveEvent(type="agent:token"):
                self._stream("text", event.text)
            case LiveEvent(type="agent:reasoning"):
                self._stream("thinking", event.text)
            case LiveEvent():
                self.remark(one_line(event.text, self._width - 2), "faint")
            case Snapshot():
                self._stream("text", event.partial.text.removeprefix(self._streamed))
            case Event():
                self._durable(event)

    def remark(self, text: str, meaning: Meaning = "faint") -> None:
        """Print a remark on a line of its own within the conversation."""
        self.close_line()
        show(self._style.paint(safe(text), meaning), is_flushed=True)

    def close_line(self) -> None:
        """End the line of streamed text, if there is one."""
        if self._open is not None:
            show(is_flushed=True)
        self._open = None

    def _stream(self, channel: _Channel, text: str) -> None:
        if not text:
            return
        if self._open != channel:
            self.close_line()
            if channel == "thinking":
                show(self._style.paint("thinking: ", "thinking"), end="")
        self._open = channel
        if channel == "text":
            self._streamed += text
        shown = safe(text)
        painted = self._style.paint(shown, "thinking") if channel == "thinking" else shown
        show(painted, end="", is_flushed=True)

    def _durable(self, event: Event) -> None:
        payload = event.payload
        match event.type:
            case "agent:message":
                self._message(payload)
            case "agent:tool_call":
                self._tool_call(payload)
            case "agent:tool_result":
                self._tool_result(payload)
            case "session:compacted":
                self.remark("older messages are now sent as a summary; the log keeps them")
            case "session:trimmed":
                if dropped := payload["droppedMessageCount"]:
                    self.remark(f"{dropped} old messages did not fit")
            case "session:turn_completed" | "session:cancelled":
                self._end(payload)
            case _:
                pass

    def _message(self, payload: Mapping[str, object]) -> None:
        """Print those parts of an answer that were not streamed."""
        if payload.get("role") != "assistant":
            return
        said = "\n\n".join(text for text in map(_text_of, _items(payload.get("parts"))) if text)
        if not self._streamed:
            self._stream("text", said)
        self._streamed = ""
        self.close_line()

    def _tool_call(self, payload: Mapping[str, object]) -> None:
        self.close_line()
        given = one_line(_arguments(payload.get("toolInput")), _ARGUMENT_CELLS)
        line = f"→ {safe(str(payload.get('toolId')))} {given}".rstrip()
        show(self._style.paint(line, "tool"), end="", is_flushed=True)
        self._open = "text"

    def _tool_result(self, payload: Mapping[str, object]) -> None:
        outcome = str(payload.get("outcome"))
        took = payload.get("durationMs")
        ended = f" {outcome}" if took is None else f" {outcome}, {took} ms"
        if self._open is None:  # its call was printed before this process began
            show(self._style.paint(f"→ {safe(str(payload.get('toolId')))}", "tool"), end="")
            self._open = "text"
        show(self._style.paint(ended, "faint" if payload.get("success") else "bad"), end="")
        self.close_line()
        if not payload.get("success") and (why := payload.get("outputSummary")):
            self.remark(f"  {one_line(str(why), self._width - 2)}", "bad")

    def _end(self, payload: Mapping[str, object]) -> None:
        self.close_line()
        self._streamed = ""
        reason = payload.get("stopReason")
        if reason not in ("stop", "error", None):
            self.remark(f"(the turn ended: {reason})")


def _items(value: object) -> tuple[object, ...]:
    return tuple(cast("list[object]", value)) if isinstance(value, list | tuple) else ()


def _text_of(part: object) -> str:
    match part:
        case {"type": "text", "text": str(text)}:  # pyrefly: ignore[not-callable] # keys of an `object`
            return text
        case _:
            return ""


def _arguments(given: object) -> str:
    """Format the arguments of a call: a single text as it is, anything else as JSON."""
    if not isinstance(given, dict) or not given:
        return ""
    values = list(cast("dict[str, object]", given).values())
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return json.dumps(given, ensure_ascii=False, default=str)
