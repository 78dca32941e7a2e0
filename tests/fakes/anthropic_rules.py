"""Rules of Anthropic's messages API that a request of perdure could break."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tests.fakes.model_server import Json, Recorded
from tests.fakes.signatures import is_signed

_ID = re.compile(r"[A-Za-z0-9_-]+")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def faults_of(request: Recorded) -> list[str]:
    """Return all errors of a request; an empty list if the API would accept it."""
    body = request.body
    if (request.method, request.path.partition("?")[0]) != ("POST", "/v1/messages"):
        return [f"nothing is at {request.method} {request.path}"]
    found: list[str] = []
    if "anthropic-version" not in request.headers:
        found.append("anthropic-version: header is required")
    if not {"x-api-key", "authorization"} & set(request.headers):
        found.append("authentication is required")
    if not isinstance(body.get("model"), str) or not body["model"]:
        found.append("no model")
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        found.append("max_tokens: field required")
    if body.get("stream") is not True:
        found.append("not a streaming request")
    messages = [_with_blocks(message) for message in body.get("messages") or ()]
    found.extend(_order_faults(messages))
    for index, message in enumerate(messages):
        found.extend(f"messages.{index}: {fault}" for fault in _message_faults(message))
    found.extend(_pairing_faults(messages))
    found.extend(_thinking_faults(body, messages))
    found.extend(_tool_faults(body))
    return found


def _with_blocks(message: Json) -> Json:
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {**message, "content": list(blocks or ())}


def _order_faults(messages: Sequence[Json]) -> Iterator[str]:
    if not messages:
        yield "messages: at least one message is required"
    elif messages[0].get("role") != "user":
        yield "messages: first message must use the user role"
    if messages and messages[-1].get("role") == "assistant":
        last = messages[-1]["content"][-1:]
        if last and last[0].get("type") == "text" and last[0]["text"].rstrip() != last[0]["text"]:
            yield "messages: final assistant content cannot end with trailing whitespace"


def _message_faults(message: Json) -> Iterator[str]:
    if message.get("role") not in ("user", "assistant"):
        yield f"role {message.get('role')!r} is not supported"
    if not message["content"]:
        yield "content must not be empty"
    for block in message["content"]:
        yield from _block_faults(block, str(message.get("role")))


def _block_faults(block: Json, role: str) -> Iterator[str]:
    kind = str(block.get("type"))
    if kind == "text":
        if not str(block.get("text", "")).strip():
            yield "text content blocks must contain non-whitespace text"
    elif kind in ("image", "document") and role == "user":
        yield from _source_faults(block)
    elif role == "assistant":
        yield from _answer_faults(block, kind)
    elif kind != "tool_result":
        yield f"{kind!r} is not possible in a message of the {role}"


def _answer_faults(block: Json, kind: str) -> Iterator[str]:
    if kind == "thinking":
        if not is_signed(block.get("thinking", ""), block.get("signature", "")):
            yield "Invalid `signature` in `thinking` block"
    elif kind == "redacted_thinking":
        if not block.get("data"):
            yield "redacted_thinking: data is required"
    elif kind != "tool_use":
        yield f"{kind!r} is not possible in a message of the assistant"
    elif not _ID.fullmatch(block.get("id", "")) or not isinstance(block.get("input"), dict):
        yield "tool_use: id or input is invalid"


def _source_faults(block: Json) -> Iterator[str]:
    source: Json = block.get("source") or {}
    allowed = _IMAGES if block["type"] == "image" else ("application/pdf",)
    if source.get("type") != "base64" or source.get("media_type") not in allowed:
        yield f"{block['type']} of {source.get('media_type')!r}"


def _pairing_faults(messages: Sequence[Json]) -> Iterator[str]:
    """Check that the next message begins with exactly one result for each call, and no other."""
    seen: set[str] = set()
    waiting: list[str] = []
    for index, message in enumerate(messages):
        content = message["content"]
        results = [block["tool_use_id"] for block in content if block.get("type") == "tool_result"]
        leading = [block.get("type") for block in content[: len(results)]]
        if leading != ["tool_result"] * len(results):
            yield f"messages.{index}: tool_result blocks must come first"
        if sorted(results) != sorted(waiting):
            yield (
                f"messages.{index}: `tool_use` ids were found without `tool_result` blocks "
                f"immediately after, or the other way round: {waiting} {results}"
            )
        waiting = [block["id"] for block in content if block.get("type") == "tool_use"]
        if len(set(waiting)) != len(waiting) or seen & set(waiting):
            yield f"messages.{index}: `tool_use` ids must be unique"
        seen |= set(waiting)
    if waiting:
        yield f"`tool_use` ids were found without `tool_result` blocks: {waiting}"


def _thinking_faults(body: Json, messages: Sequence[Json]) -> Iterator[str]:
    thinking: Json = body.get("thinking") or {"type": "disabled"}
    if thinking.get("type") == "disabled":
        return
    if body.get("temperature") not in (None, 1):
        yield "`temperature` may only be set to 1 when thinking is enabled"
    if thinking.get("type") != "enabled":
        return
    if not 1024 <= thinking.get("budget_tokens", 0) < body.get("max_tokens", 0):
        yield "`max_tokens` must be greater than `thinking.budget_tokens`, and that be 1024 or more"
    answers = [m["content"] for m in messages if m.get("role") == "assistant"]
    is_open = any(block.get("type") == "tool_result" for block in messages[-1]["content"])
    if answers and is_open and answers[-1][0].get("type") not in ("thinking", "redacted_thinking"):
        yield (
            "Expected `thinking` or `redacted_thinking`, but found "
            f"`{answers[-1][0].get('type')}`. When `thinking` is enabled, a final `assistant` "
            "message must start with a thinking block"
        )


def _tool_faults(body: Json) -> Iterator[str]:
    for index, tool in enumerate(body.get("tools") or ()):
        schema: Json = tool.get("input_schema") or {}
        if not _NAME.fullmatch(tool.get("name", "")) or schema.get("type") != "object":
            yield f"tools.{index}: name or input_schema is invalid"
