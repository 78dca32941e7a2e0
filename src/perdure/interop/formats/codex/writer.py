"""Write a conversation as a Codex rollout, which ``codex resume`` continues.

The functions of this module are pure. ``response_item`` lines contain the model's input; each text
also has an ``event_msg`` line, which Codex displays. The header names no provider, because Codex
refuses to continue a session with another provider.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from perdure.interop.formats.codex.reader import FORMAT
from perdure.interop.formats.conversation import (
    OTHER_ENTRIES,
    Conversation,
    allowed_id,
    allowed_name,
    named,
)
from perdure.interop.formats.losses import MEDIUM, Losses
from perdure.interop.reports import Exported
from perdure.session.clock import moment_of, timestamp
from perdure.session.codec import encode
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

ORIGINATOR = "perdure"
VERSION = "0.0.0"

Item = Mapping[str, object]


def file_name(conversation: Conversation) -> str:
    """Return the file's path below ``sessions``.

    Codex finds a session by the id that ends the path.
    """
    at: datetime = moment_of(conversation.created_at)
    return f"{at:%Y/%m/%d}/rollout-{at:%Y-%m-%dT%H-%M-%S}-{conversation.id}.jsonl"


def rollout_file(conversation: Conversation) -> Exported:
    """Return `conversation` as a rollout."""
    lost = Losses()
    lost.add(OTHER_ENTRIES, conversation.left_out)
    lost.add("title", conversation.title is not None)
    lines: list[Item] = []
    for said in conversation.said:
        for type, payload in _of_message(conversation, said.message, lost):
            lines.append(_line(type, payload, said.at))
    header = {**_header(conversation), **conversation.handover(1 + len(lines))}
    lines.insert(0, _line("session_meta", header, conversation.created_at))
    content = b"".join(encode(line) + b"\n" for line in lines)
    return Exported(conversation.session, FORMAT, content, tuple(lost.texts()))


def _line(type: str, payload: Item, at: int) -> Item:
    return {"timestamp": timestamp(at), "type": type, "payload": payload}


def _header(conversation: Conversation) -> Item:
    return {
        "id": str(conversation.id),
        "timestamp": timestamp(conversation.created_at),
        "cwd": conversation.cwd or "/",
        "originator": ORIGINATOR,
        "cli_version": VERSION,
        "source": "cli",
    }


def _of_message(
    conversation: Conversation, message: Message, lost: Losses
) -> Iterator[tuple[str, Item]]:
    """Yield the type and payload of each line of `message`."""
    is_answer = message.role == "assistant"
    content: list[Item] = []
    rest: list[Item] = []
    for part in message.parts:
        match part:
            case TextPart() | MediaPart():
                content += _content(conversation, part, lost, is_answer=is_answer)
            case ToolCallPart():
                rest.append(
                    {
                        "type": "function_call",
                        "name": allowed_name(part.name),
                        "arguments": encode(part.args).decode(),
                        "call_id": allowed_id(part.id),
                    }
                )
            case ToolResultPart():
                rest.append(_result(part, lost))
            case _:
                lost.add_part(part)
    if content:
        role = "assistant" if is_answer else "user"
        yield "response_item", {"type": "message", "role": role, "content": content}
        shown = "agent_message" if is_answer else "user_message"
        yield "event_msg", {"type": shown, "message": message.text}
    yield from (("response_item", item) for item in rest)


def _content(
    conversation: Conversation, part: Part, lost: Losses, *, is_answer: bool
) -> Iterator[Item]:
    of_text = "output_text" if is_answer else "input_text"
    match part:
        case TextPart(text) if text:
            yield {"type": of_text, "text": text}
        case MediaPart():
            data = conversation.base64(part)
            if data is not None and part.mime_type.startswith("image/") and not is_answer:
                yield {"type": "input_image", "image_url": f"data:{part.mime_type};base64,{data}"}
                return
            lost.add(MEDIUM)
            yield {"type": of_text, "text": named(part)}
        case _:
            pass


def _result(part: ToolResultPart, lost: Losses) -> Item:
    lost.add(MEDIUM, len(part.media))
    text = "\n".join([*([part.text] if part.text else []), *map(named, part.media)])
    return {"type": "function_call_output", "call_id": allowed_id(part.call_id), "output": text}
