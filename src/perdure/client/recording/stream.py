"""Assemble a streamed response from its server-sent events.

Pure: the input is bytes; the output is the response that the same API would return without
streaming.
"""

from __future__ import annotations

from typing import Any

from perdure.bounds.limits import limits
from perdure.client.recording.calls import Api
from perdure.codecs.fields import Fields, fields_of, list_in, name_in, number_in, object_in, text_in
from perdure.codecs.lines import read_line

_MAX_ITEMS = 10_000
"""Maximum number of content blocks or tool calls in one response."""


class StreamedResponse:
    """Collects the events of one response.

    `fields` is the response so far; `error` is the provider's error message, if an error ended the
    response early.
    """

    def __init__(self, api: Api) -> None:
        self.api = api
        self.fields: Fields = {}
        self.is_complete = False
        self.error: str | None = None
        self._rest = b""
        self._blocks: dict[int, Fields] = {}
        self._inputs: dict[int, str] = {}

    def feed(self, data: bytes) -> None:
        """Read the next bytes of the stream."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > limits().import_line_bytes:
            self._rest = b""  # no event of a provider is that long
        for line in lines:
            if line.startswith(b"data:"):
                event = fields_of(read_line(line[5:].strip()).value)
                if event is not None:
                    self._take(event)
                elif line[5:].strip() == b"[DONE]":
                    self.is_complete = True

    def _take(self, event: Fields) -> None:
        told = name_in(event, "error")
        error = object_in(event, "error") or (event if text_in(event, "type") == "error" else None)
        if told is not None or error is not None:
            self.error = told or text_in(error or {}, "message") or "the provider sent an error"
            return
        match self.api:
            case "chat":
                self._take_chunk(event)
            case "responses":
                response = object_in(event, "response")
                kind = text_in(event, "type") or ""
                if response is not None and kind.startswith("response."):
                    self.fields = {**self._output(), **response}
                    self.is_complete = kind in ("response.completed", "response.incomplete")
                elif kind == "response.output_item.done":
                    self._put(event, "output_index", object_in(event, "item") or {})
                    self.fields |= self._output()
            case _:
                self._take_message_event(event)

    def _output(self) -> Fields:
        return {"output": [self._blocks[index] for index in sorted(self._blocks)]}

    def _put(self, event: Fields, key: str, block: Fields) -> int | None:
        index = number_in(event, key)
        if index is None or not 0 <= index < _MAX_ITEMS:
            return None
        self._blocks[int(index)] = block
        return int(index)

    # ------------------------------------------------------------ chat completions

    def _take_chunk(self, event: Fields) -> None:
        for name in ("id", "model", "usage"):
            if event.get(name) is not None:
                self.fields[name] = event[name]
        for each in list_in(event, "choices") or ():
            choice = fields_of(each) or {}
            if number_in(choice, "index") not in (0, None):
                continue  # other choices of one request are alternatives
            said = self.fields.setdefault("choices", [{"message": {}}])[0]
            reason = name_in(choice, "finish_reason")
            if reason is not None:
                said["finish_reason"] = reason
                self.is_complete = True  # some servers send no [DONE]
            self._take_delta(said["message"], object_in(choice, "delta") or {})

    def _take_delta(self, said: dict[str, Any], delta: Fields) -> None:
        for name in ("content", "refusal", "reasoning_content", "reasoning"):
            text = text_in(delta, name)
            if text is not None:
                said[name] = said.get(name, "") + text
        for each in list_in(delta, "tool_calls") or ():
            piece = fields_of(each) or {}
            index = int(number_in(piece, "index") or 0)
            if not 0 <= index < _MAX_ITEMS:
                continue
            call = self._blocks.setdefault(index, {"function": {"name": "", "arguments": ""}})
            call["id"] = text_in(piece, "id") or call.get("id")
            function = object_in(piece, "function") or {}
            for name in ("name", "arguments"):
                call["function"][name] += text_in(function, name) or ""
            said["tool_calls"] = [self._blocks[index] for index in sorted(self._blocks)]

    # ------------------------------------------------------------ Anthropic's messages

    def _take_message_event(self, event: Fields) -> None:
        match text_in(event, "type"):
            case "message_start":
                self.fields = dict(object_in(event, "message") or {})
            case "content_block_start":
                index = self._put(event, "index", dict(object_in(event, "content_block") or {}))
                if index is not None:
                    self._inputs[index] = ""
            case "content_block_delta":
                self._take_block_delta(event, object_in(event, "delta") or {})
            case "message_delta":
                self.fields |= object_in(event, "delta") or {}
                usage = {**(object_in(self.fields, "usage") or {})}
                self.fields["usage"] = usage | (object_in(event, "usage") or {})
            case "message_stop":
                self.is_complete = True
            case _:
                pass
        self.fields["content"] = [self._block(index) for index in sorted(self._blocks)]

    def _take_block_delta(self, event: Fields, delta: Fields) -> None:
        index = int(number_in(event, "index") or 0)
        block = self._blocks.get(index)
        if block is None:
            return
        for name in ("text", "thinking"):
            text = text_in(delta, name)
            if text is not None:
                block[name] = (text_in(block, name) or "") + text
        self._inputs[index] = self._inputs.get(index, "") + (text_in(delta, "partial_json") or "")

    def _block(self, index: int) -> Fields:
        given = self._inputs.get(index)
        if not given:
            return self._blocks[index]
        args = fields_of(read_line(given.encode()).value)
        return {**self._blocks[index], "input": {"arguments": given} if args is None else args}
