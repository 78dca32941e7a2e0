"""Write a conversation as a Claude Code transcript, which ``claude --resume`` continues.

The functions of this module are pure. The file has one record per message, and at the end a record
with the title. The parent of a message's record is the record of the previous message. Claude Code
writes one record per content block, but can also read several blocks in one record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from uuid import uuid5

from perdure.interop.formats.claude_code.messages import WRITTEN_HERE
from perdure.interop.formats.claude_code.reader import FORMAT
from perdure.interop.formats.conversation import (
    OTHER_ENTRIES,
    Conversation,
    Said,
    allowed_id,
    allowed_name,
    named,
)
from perdure.interop.formats.losses import MEDIUM, Losses
from perdure.interop.reports import Exported
from perdure.session.clock import timestamp
from perdure.session.codec import encode
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    StopReason,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)

VERSION = "2.1.0"
"""The version of Claude Code whose record format the file uses."""

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
DOCUMENT = "application/pdf"

_STOPS: Mapping[StopReason, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
_NOT_IN_FOLDERS = re.compile(r"[^A-Za-z0-9]")

Block = Mapping[str, object]


def folder_of(cwd: str) -> str:
    """Return the folder below ``projects`` in which Claude Code looks for sessions of `cwd`."""
    return _NOT_IN_FOLDERS.sub("-", cwd)


def file_name(conversation: Conversation) -> str:
    """Return the name of the file, by which Claude Code finds a session."""
    return f"{conversation.id}.jsonl"


def transcript_file(conversation: Conversation) -> Exported:
    """Return `conversation` as a transcript."""
    lost = Losses()
    lost.add(OTHER_ENTRIES, conversation.left_out)
    records = list(_Writer(conversation, lost).records())
    content = b"".join(encode(record) + b"\n" for record in records)
    return Exported(conversation.session, FORMAT, content, tuple(lost.texts()))


class _Writer:
    def __init__(self, conversation: Conversation, lost: Losses) -> None:
        self._conversation = conversation
        self._lost = lost
        self._shared: Mapping[str, object] = {
            "isSidechain": False,
            "userType": "external",
            "cwd": conversation.cwd or "/",
            "sessionId": str(conversation.id),
            "version": VERSION,
            "gitBranch": "",
        }

    def records(self) -> Iterator[Mapping[str, object]]:
        parent: str | None = None
        lines = len(self._conversation.said) + (self._conversation.title is not None)
        mark = self._conversation.handover(lines)
        for number, said in enumerate(self._conversation.said):
            own = str(uuid5(self._conversation.id, str(number)))
            is_answer = said.message.role == "assistant"
            yield {
                "parentUuid": parent,
                **self._shared,
                "type": "assistant" if is_answer else "user",
                "message": self._answer(own, said) if is_answer else self._input(said.message),
                "uuid": own,
                "timestamp": timestamp(said.at),
                **({} if number else mark),
            }
            parent = own
        if self._conversation.title is not None:
            title, session = self._conversation.title, str(self._conversation.id)
            yield {"type": "custom-title", "customTitle": title, "sessionId": session}

    def _answer(self, own: str, said: Said) -> Block:
        message = said.message
        reason = message.stop_reason or ("tool_calls" if message.tool_calls else "stop")
        return {
            "id": f"{WRITTEN_HERE}{own}",
            "type": "message",
            "role": "assistant",
            "model": (message.model or "unknown").partition(":")[2] or message.model or "unknown",
            "content": [block for part in message.parts for block in self._blocks(part)],
            "stop_reason": _STOPS.get(reason, "end_turn"),
            "stop_sequence": None,
            "usage": _usage(message.usage or Usage()),
        }

    def _input(self, message: Message) -> Block:
        match message.parts:
            case (TextPart(text),):
                return {"role": "user", "content": text}
            case parts:
                return {
                    "role": "user",
                    "content": [b for part in parts for b in self._blocks(part)],
                }

    def _blocks(self, part: Part) -> Iterator[Block]:
        match part:
            case TextPart(text) if text:
                yield {"type": "text", "text": text}
            case MediaPart():
                yield self._medium(part)
            case ToolCallPart():
                yield {
                    "type": "tool_use",
                    "id": allowed_id(part.id),
                    "name": allowed_name(part.name),
                    "input": part.args,
                }
            case ToolResultPart():
                yield self._result(part)
            case TextPart():
                pass
            case _:
                self._lost.add_part(part)

    def _result(self, part: ToolResultPart) -> Block:
        content: object = part.text
        if part.media:
            texts = [{"type": "text", "text": part.text}] if part.text else []
            content = [*texts, *map(self._medium, part.media)]
        return {
            "type": "tool_result",
            "tool_use_id": allowed_id(part.call_id),
            "content": content,
            **({"is_error": True} if part.is_error else {}),
        }

    def _medium(self, part: MediaPart) -> Block:
        data = self._conversation.base64(part)
        kind = "image" if part.mime_type in IMAGES else "document"
        if data is None or (kind == "document" and part.mime_type != DOCUMENT):
            self._lost.add(MEDIUM)
            return {"type": "text", "text": named(part)}
        source = {"type": "base64", "media_type": part.mime_type, "data": data}
        return {"type": kind, "source": source}


def _usage(usage: Usage) -> Block:
    return {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "output_tokens": usage.output_tokens,
    }
