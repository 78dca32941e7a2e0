"""Rules of OpenAI's chat completions that a request of perdure could break."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

from tests.fakes.model_server import Json

ROLES = ("system", "developer", "user", "assistant", "tool")


def faults_of(body: Json) -> list[str]:
    """Return all errors of a request body; an empty list if the API would accept it."""
    found: list[str] = []
    if not isinstance(body.get("model"), str) or not body["model"]:
        found.append("no model")
    if body.get("stream") is not True:
        found.append("not a streaming request")
    messages: Sequence[Json] = body.get("messages") or ()
    if not messages:
        found.append("no messages")
    for index, message in enumerate(messages):
        found.extend(f"messages[{index}]: {fault}" for fault in _message_faults(message, index))
    found.extend(_pairing_faults(messages))
    for index, tool in enumerate(body.get("tools") or ()):
        found.extend(f"tools[{index}]: {fault}" for fault in _tool_faults(tool))
    return found


def _message_faults(message: Json, index: int) -> list[str]:
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        return [f"unknown role {role!r}"]
    faults: list[str] = []
    if role in ("system", "developer") and index > 0:
        faults.append("system message that is not the first")
    if role == "assistant" and content is None and not message.get("tool_calls"):
        faults.append("assistant message with neither content nor tool calls")
    if role == "tool" and not isinstance(content, str):
        faults.append("tool message without text")
    if role == "user":
        faults.extend(_content_faults(content))
    return faults


def _content_faults(content: object) -> list[str]:
    if isinstance(content, str):
        return []
    if not isinstance(content, list) or not content:
        return ["user message without content"]
    faults: list[str] = []
    for part in cast("list[Json]", content):
        kind = part.get("type")
        if kind == "image_url":
            url = part["image_url"]["url"]
            if not str(url).startswith("data:image/"):
                faults.append("image that is no data URL")
        elif kind not in ("text", "file", "input_audio"):
            faults.append(f"unknown part {kind!r}")
    return faults


def _pairing_faults(messages: Sequence[Json]) -> list[str]:
    """Check that tool results follow their calls directly, and that no other results exist."""
    faults: list[str] = []
    waiting: list[str] = []
    for index, message in enumerate(messages):
        if message.get("role") == "tool":
            if message.get("tool_call_id") in waiting:
                waiting.remove(message["tool_call_id"])
            else:
                faults.append(f"messages[{index}]: answers a call that was not made")
            continue
        faults.extend(f"messages[{index}]: tool call {call} is not answered" for call in waiting)
        waiting = []
        for call in message.get("tool_calls") or ():
            faults.extend(f"messages[{index}]: {fault}" for fault in _call_faults(call))
            waiting.append(call.get("id"))
        if len(set(waiting)) != len(waiting):
            faults.append(f"messages[{index}]: two calls with one id")
    faults.extend(f"tool call {call} is not answered" for call in waiting)
    return faults


def _call_faults(call: Json) -> list[str]:
    function: Json = call.get("function") or {}
    if not call.get("id") or call.get("type") != "function" or not function.get("name"):
        return ["tool call without id, type or name"]
    try:
        arguments: object = json.loads(function.get("arguments", ""))
    except json.JSONDecodeError:
        return ["tool call whose arguments are not JSON"]
    return [] if isinstance(arguments, dict) else ["tool call whose arguments are no object"]


def _tool_faults(tool: Json) -> list[str]:
    function: Json = tool.get("function") or {}
    if tool.get("type") != "function" or not function.get("name"):
        return ["no function with a name"]
    parameters: Json = function.get("parameters") or {}
    return [] if parameters.get("type") == "object" else ["parameters that are no object"]
