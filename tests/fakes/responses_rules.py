"""Rules of OpenAI's responses API that a request of perdure could break."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import cast

from tests.fakes.model_server import Json, Recorded
from tests.fakes.signatures import is_signed

_PARTS = {
    "user": ("input_text", "input_image", "input_file"),
    "system": ("input_text",),
    "developer": ("input_text",),
    "assistant": ("output_text", "refusal"),
}


def faults_of(request: Recorded) -> list[str]:
    """Return all errors of a request; an empty list if the API would accept it."""
    if (request.method, request.path) != ("POST", "/v1/responses"):
        return [f"nothing is at {request.method} {request.path}"]
    body = request.body
    found: list[str] = []
    if not isinstance(body.get("model"), str) or not body["model"]:
        found.append("Missing required parameter: 'model'.")
    if body.get("stream") is not True:
        found.append("not a streaming request")
    limit = body.get("max_output_tokens")
    if limit is not None and limit < 16:
        found.append("'max_output_tokens': integer below minimum value, expected >= 16")
    given: object = body.get("input")
    items = cast("Sequence[Json]", given) if isinstance(given, list) else ()
    if not items:
        found.append("input is empty")
    for index, item in enumerate(items):
        found.extend(f"input[{index}]: {fault}" for fault in _item_faults(item, body))
    found.extend(_pairing_faults(items))
    found.extend(_reasoning_faults(items))
    for index, tool in enumerate(body.get("tools") or ()):
        if tool.get("type") != "function" or not tool.get("name"):
            found.append(f"tools[{index}]: no function with a name")
    return found


def _item_faults(item: Json, body: Json) -> Iterator[str]:
    kind = item.get("type", "message")
    if kind == "message":
        yield from _message_faults(item)
    elif kind == "function_call":
        try:
            arguments: object = json.loads(item.get("arguments", ""))
        except json.JSONDecodeError:
            arguments = None
        if not isinstance(arguments, dict) or not item.get("call_id") or not item.get("name"):
            yield "function call without id, name or arguments"
    elif kind == "function_call_output":
        if not isinstance(item.get("output"), str | list):
            yield "function call output without output"
    elif kind == "reasoning":
        yield from _reasoning_item_faults(item, body)
    else:
        yield f"Invalid value: {kind!r}"


def _message_faults(item: Json) -> Iterator[str]:
    role, content = item.get("role"), item.get("content")
    if role not in _PARTS:
        yield f"Invalid role {role!r}"
        return
    if isinstance(content, str):
        return
    for part in cast("Sequence[Json]", content or ()):
        if part.get("type") not in _PARTS[str(role)]:
            yield f"Invalid value: {part.get('type')!r} in a message of the {role}"
        if part.get("type") == "input_image" and not str(part["image_url"]).startswith(
            "data:image/"
        ):
            yield "image that is no data URL"


def _reasoning_item_faults(item: Json, body: Json) -> Iterator[str]:
    content = item.get("encrypted_content")
    if not content and body.get("store") is False:
        yield f"Item with id '{item.get('id')}' not found. Items are not persisted without store"
    elif not is_signed(str(item.get("id")), str(content)):
        yield "The encrypted content could not be verified"


def _pairing_faults(items: Sequence[Json]) -> Iterator[str]:
    made = [item.get("call_id") for item in items if item.get("type") == "function_call"]
    answered = [item.get("call_id") for item in items if item.get("type") == "function_call_output"]
    for call in made:
        if call not in answered:
            yield f"No tool output found for function call {call}."
    for call in answered:
        if call not in made:
            yield f"No tool call found for function call output with call_id {call}."
    if len(set(made)) != len(made):
        yield "Duplicate call_id"


def _reasoning_faults(items: Sequence[Json]) -> Iterator[str]:
    for index, item in enumerate(items):
        following: Json = items[index + 1] if index + 1 < len(items) else {}
        if item.get("type") == "reasoning" and (
            following.get("type") not in ("function_call", "reasoning", "message")
            and following.get("role") != "assistant"
        ):
            yield f"Item '{item.get('id')}' was provided without its required following item."
        is_reasoned = any(other.get("type") == "reasoning" for other in items[:index])
        if item.get("type") == "function_call" and item.get("id") and not is_reasoned:
            yield f"'{item['id']}' was provided without its required 'reasoning' item"
