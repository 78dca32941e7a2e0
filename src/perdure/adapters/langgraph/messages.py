"""Converts the messages of a graph's state to session messages that people can read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

import perdure

CHANNEL = "messages"
"""The channel of a graph's state whose messages a session shows to people."""


def messages_of(values: dict[str, Any]) -> list[BaseMessage]:
    """Return the messages of a state, or an empty list if it has no list of messages."""
    found: object = values.get(CHANNEL)
    if not isinstance(found, list):
        return []
    listed = cast("list[object]", found)
    messages = [each for each in listed if isinstance(each, BaseMessage)]
    return messages if len(messages) == len(listed) else []


def readable(messages: Sequence[BaseMessage]) -> list[perdure.Message]:
    """Return the readable parts of `messages`: text, tool calls and tool results."""
    return [made for each in messages if (made := _readable(each)) is not None]


def _readable(message: BaseMessage) -> perdure.Message | None:
    text = _text(message.content)
    match message:
        case HumanMessage():
            return perdure.user(text)
        case SystemMessage():
            return perdure.system(text)
        case ToolMessage():
            is_error = message.status == "error"
            return perdure.tool_result(message.tool_call_id, text, is_error=is_error)
        case AIMessage():
            calls = [
                perdure.tool_call(call["id"] or call["name"], call["name"], call["args"])
                for call in message.tool_calls
            ]
            return perdure.assistant(*([text] if text or not calls else []), *calls)
        case _:
            return None


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    blocks = cast("list[object]", content if isinstance(content, list) else [])
    return "".join(_block(block) for block in blocks)


def _block(block: object) -> str:
    if isinstance(block, dict):
        text: object = cast("dict[str, object]", block).get("text", "")
        return text if isinstance(text, str) else ""
    return block if isinstance(block, str) else ""
