"""Rules of Google's ``generateContent`` that a request of perdure could break."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence

from tests.fakes.model_server import Json, Recorded
from tests.fakes.signatures import is_signed

_PATH = re.compile(r"/v1beta/models/[^/:]+:streamGenerateContent\?alt=sse")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
_KINDS = ("text", "inlineData", "functionCall", "functionResponse")
STAND_IN = base64.b64encode(b"skip_thought_signature_validator").decode()
"""The value that Google documents for calls whose signature is missing."""


def faults_of(request: Recorded) -> list[str]:
    """Return all errors of a request; an empty list if the API would accept it."""
    if request.method != "POST" or not _PATH.fullmatch(request.path):
        return [f"nothing is at {request.method} {request.path}"]
    body = request.body
    found = [] if request.headers.get("x-goog-api-key") else ["API key not found"]
    contents: Sequence[Json] = body.get("contents") or ()
    if not contents:
        found.append("contents is not specified")
    for index, content in enumerate(contents):
        found.extend(f"contents[{index}]: {fault}" for fault in _content_faults(content))
    found.extend(_pairing_faults(contents))
    found.extend(_signature_faults(contents))
    found.extend(_tool_faults(body))
    config: Json = body.get("generationConfig") or {}
    thinking: Json = config.get("thinkingConfig") or {}
    if len({"thinking_level", "thinking_budget"} & set(thinking)) > 1:
        found.append("thinking level and thinking budget cannot be set both")
    return found


def _content_faults(content: Json) -> Iterator[str]:
    if content.get("role") not in ("user", "model"):
        yield "Please use a valid role: user, model."
    if not content.get("parts"):
        yield "contents.parts must not be empty"
    for part in content.get("parts") or ():
        kinds = [kind for kind in _KINDS if kind in part]
        if len(kinds) != 1:
            yield f"a part has exactly one of its kinds, not {sorted(part)}"
        inline: Json = part.get("inlineData", {"mime_type": "-", "data": "-"})
        if not inline.get("mime_type") or not inline.get("data"):
            yield "inline data without type or data"


def _pairing_faults(contents: Sequence[Json]) -> Iterator[str]:
    """Check that calls come after a user or response turn, and that their responses come next."""
    waiting = 0
    previous = ""
    for index, content in enumerate(contents):
        calls = [part for part in content.get("parts") or () if "functionCall" in part]
        responses = [part for part in content.get("parts") or () if "functionResponse" in part]
        if len(responses) != waiting:
            yield (
                f"contents[{index}]: the number of function response parts must be equal to the "
                "number of function call parts of the function call turn"
            )
        if calls and previous != "user":
            yield (
                f"contents[{index}]: function call turn must come immediately after a user turn "
                "or after a function response turn"
            )
        waiting, previous = len(calls), str(content.get("role"))
    if waiting:
        yield "function calls that nobody answered"


def _signature_faults(contents: Sequence[Json]) -> Iterator[str]:
    """Check that the first call of each step of the open turn has its original signature."""
    begins = max((i for i, c in enumerate(contents) if _is_prompt(c)), default=0)
    for index, content in enumerate(contents):
        calls = [part for part in content.get("parts") or () if "functionCall" in part]
        if index < begins or not calls:
            continue
        signature = _standard(str(calls[0].get("thoughtSignature", "")))
        name = str(calls[0]["functionCall"].get("name"))
        if signature != STAND_IN and not is_signed(name, signature):
            yield f"contents[{index}]: Function call is missing a thought_signature, or it is wrong"


def _standard(text: str) -> str:
    """Return base64 in the standard alphabet; Google accepts the URL-safe alphabet too."""
    return text.replace("-", "+").replace("_", "/")


def _is_prompt(content: Json) -> bool:
    parts: Sequence[Json] = content.get("parts") or ()
    return content.get("role") == "user" and not any("functionResponse" in part for part in parts)


def _tool_faults(body: Json) -> Iterator[str]:
    for tool in body.get("tools") or ():
        for declared in tool.get("functionDeclarations") or ():
            # Fields may come in either spelling, as everywhere in JSON for protocol buffers.
            schema: Json = declared.get("parametersJsonSchema") or declared.get(
                "parameters_json_schema", {}
            )
            if not _NAME.fullmatch(declared.get("name", "")):
                yield f"Invalid function name {declared.get('name')!r}"
            if str(schema.get("type", "")).lower() != "object":
                yield "parameters schema should be of type OBJECT"
