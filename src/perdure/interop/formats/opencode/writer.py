"""Write a conversation as an export of opencode, which ``opencode import`` reads.

The functions of this module are pure. An answer and the results of its calls become one record, as
in opencode. In the id of a message, the time and the number of the message follow the kind, because
opencode sorts messages by their ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from perdure.interop.formats.conversation import (
    OTHER_ENTRIES,
    Conversation,
    Said,
    allowed_id,
    allowed_name,
    named,
)
from perdure.interop.formats.losses import MEDIUM, Losses
from perdure.interop.formats.opencode.ids import opencode_id
from perdure.interop.formats.opencode.reader import FORMAT
from perdure.interop.reports import Exported
from perdure.session.codec import encode
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

VERSION = "1.18.0"
AGENT = "build"

_FINISHES = {"tool_calls": "tool-calls", "content_filter": "content-filter", "aborted": "unknown"}

Fields = Mapping[str, object]

_SPENT_ELSEWHERE: Fields = {
    "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
    "cost": 0,
}
"""Zero usage for an answer: the session that the answer comes from already counts its usage."""


def session_id(conversation: Conversation) -> str:
    """Return the id that the session gets in opencode."""
    return opencode_id("ses", conversation.created_at, 0, str(conversation.id))


def file_name(conversation: Conversation) -> str:
    """Return a name for the file; opencode accepts any name."""
    return f"{session_id(conversation)}.json"


def export_file(conversation: Conversation) -> Exported:
    """Return `conversation` as an export."""
    lost = Losses()
    lost.add(OTHER_ENTRIES, conversation.left_out)
    messages = list(_Writer(conversation, lost).messages())
    times = [said.at for said in conversation.said] or [conversation.created_at]
    info = {
        "id": session_id(conversation),
        "slug": "perdure",
        "projectID": "global",
        "directory": conversation.cwd or "/",
        "title": conversation.title or "Continued from perdure",
        "version": VERSION,
        "time": {"created": conversation.created_at, "updated": times[-1]},
    }
    content = msgspec.json.format(encode({"info": info, "messages": messages}), indent=1)
    return Exported(conversation.session, FORMAT, content + b"\n", tuple(lost.texts()))


class _Writer:
    def __init__(self, conversation: Conversation, lost: Losses) -> None:
        self._conversation = conversation
        self._lost = lost
        self._session = session_id(conversation)
        self._asked: str | None = None  # the newest message of the person
        self._number = 0
        self._is_marked = False

    def messages(self) -> Iterator[Fields]:
        """Yield a record for each user message and for each answer."""
        said = self._conversation.said
        for at, each in enumerate(said):
            if each.message.role == "assistant":
                after = said[at + 1].message if at + 1 < len(said) else None
                results = after.parts if after is not None and after.role == "tool" else ()
                yield self._answer(each, results)
            elif each.message.role != "tool":
                yield self._input(each)

    def _input(self, said: Said) -> Fields:
        self._asked = own = self._next("msg", said.at)
        provider, model = _model(said.message)
        info = {
            "id": own,
            "sessionID": self._session,
            "role": "user",
            "time": {"created": said.at},
            "agent": AGENT,
            "model": {"providerID": provider, "modelID": model},
        }
        parts = [self._content(part) for part in said.message.parts]
        marked = next((n for n, part in enumerate(parts) if part.get("type") == "text"), None)
        if not self._is_marked and marked is not None:
            self._is_marked = True
            parts[marked] = {**parts[marked], "metadata": self._conversation.handover(0)}
        return {"info": info, "parts": self._placed(own, said.at, parts)}

    def _answer(self, said: Said, results: Sequence[Part]) -> Fields:
        own = self._next("msg", said.at)
        message = said.message
        provider, model = _model(message)
        finish = _FINISHES.get(message.stop_reason or "", message.stop_reason or "stop")
        cwd = self._conversation.cwd or "/"
        info = {
            "id": own,
            "sessionID": self._session,
            "parentID": self._asked or own,
            "role": "assistant",
            "mode": AGENT,
            "agent": AGENT,
            "path": {"cwd": cwd, "root": "/"},
            "providerID": provider,
            "modelID": model,
            "time": {"created": said.at, "completed": said.at},
            "finish": finish,
            **_SPENT_ELSEWHERE,
        }
        by_call = {part.call_id: part for part in results if isinstance(part, ToolResultPart)}
        parts: list[Fields] = [{"type": "step-start"}]
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                parts.append(self._call(part, by_call.get(part.id), said.at))
            else:
                parts.append(self._content(part))
        parts.append({"type": "step-finish", "reason": finish, **_SPENT_ELSEWHERE})
        return {"info": info, "parts": self._placed(own, said.at, parts)}

    def _content(self, part: Part) -> Fields:
        match part:
            case TextPart(text):
                return {"type": "text", "text": text}
            case MediaPart():
                data = self._conversation.base64(part)
                if data is None:
                    self._lost.add(MEDIUM)
                    return {"type": "text", "text": named(part)}
                url = f"data:{part.mime_type};base64,{data}"
                name = part.name or "attachment"
                return {"type": "file", "mime": part.mime_type, "filename": name, "url": url}
            case _:
                self._lost.add_part(part)
                return {}

    def _call(self, call: ToolCallPart, result: ToolResultPart | None, at: int) -> Fields:
        time = {"start": at, "end": at}
        text = "" if result is None else "\n".join([result.text, *map(named, result.media)])
        if result is None or result.is_error:
            state: Fields = {"status": "error", "error": text or "no result", "time": time}
        else:
            state = {"status": "completed", "output": text, "title": call.name, "time": time}
            state = {**state, "metadata": {}}
        self._lost.add(MEDIUM, 0 if result is None else len(result.media))
        return {
            "type": "tool",
            "callID": allowed_id(call.id),
            "tool": allowed_name(call.name),
            "state": {**state, "input": call.args},
        }

    def _placed(self, message: str, at: int, parts: Sequence[Fields]) -> list[Fields]:
        """Return the `parts` that are not empty, with the ids of the part, message and session."""
        place = {"sessionID": self._session, "messageID": message}
        return [{"id": self._next("prt", at), **place, **part} for part in parts if part]

    def _next(self, kind: str, at: int) -> str:
        self._number += 1
        return opencode_id(kind, at, self._number, str(self._conversation.id))


def _model(message: Message) -> tuple[str, str]:
    provider, _, model = (message.model or "unknown:unknown").partition(":")
    return (provider, model) if model else ("unknown", provider)
