"""Store answers with tool calls unchanged in memory while their turn might continue.

Providers sign or encrypt the reasoning before a tool call. A provider requires that the request
with the tool's result repeats the reasoning before the call unchanged. The signatures of reasoning
are only in memory, because the log stores none (``docs/log-format.md``). After a restart, the next
request therefore contains no reasoning.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import (
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)

from perdure.models.stream import repair_unicode
from perdure.session.messages import Message

KEPT_ANSWERS = 512
"""Maximum number of stored answers; one process has fewer open tool rounds at a time."""

_IN_TAGS = "content"
"""The library's id for reasoning that it found in the text, between tags.

Such reasoning cannot be sent back in a field.
"""

_Key = tuple[str, tuple[str, ...]]


class RoundMemory:
    """Stores answers, keyed by model and call ids; drops the oldest answers first."""

    def __init__(self, limit: int = KEPT_ANSWERS) -> None:
        self._limit = limit
        self._answers: OrderedDict[_Key, ModelResponse] = OrderedDict()

    def keep(self, model: str, answer: ModelResponse) -> None:
        """Store `answer` of `model` if it has tool calls.

        An answer without calls is not stored, because it ends its turn.
        """
        parts = [kept for part in answer.parts if (kept := _replayable_part(part)) is not None]
        ids = tuple(part.tool_call_id for part in parts if isinstance(part, ToolCallPart))
        if not ids:
            return
        self._answers[model, ids] = replace(answer, parts=parts)
        if len(self._answers) > self._limit:
            self._answers.popitem(last=False)

    def recall(self, message: Message) -> ModelResponse | None:
        """Return the stored answer that has the same calls as `message`; None if there is none.

        In the result, the arguments of each call are replaced by the arguments in `message`.
        """
        ids = tuple(call.id for call in message.tool_calls)
        answer = self._answers.get((message.model or "", ids))
        if answer is None:
            return None
        # Invalid JSON was logged as an object, and is sent back as that object.
        args: dict[str, Any] = {call.id: dict(call.args) for call in message.tool_calls}
        parts = [
            replace(part, args=args[part.tool_call_id]) if isinstance(part, ToolCallPart) else part
            for part in answer.parts
        ]
        return replace(answer, parts=parts)


def open_rounds(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the part of `messages` after the user message that began the current turn.

    A user message directly after a tool's result belongs to the current turn.
    """
    for index in range(len(messages) - 1, -1, -1):
        is_first = index == 0 or messages[index - 1].role != "tool"
        if messages[index].role == "user" and is_first:
            return messages[index + 1 :]
    return messages


def _replayable_part(part: ModelResponsePart) -> ModelResponsePart | None:
    if isinstance(part, TextPart):
        return replace(part, content=repair_unicode(part.content))
    if isinstance(part, ThinkingPart):
        return None if part.id == _IN_TAGS else replace(part, content=repair_unicode(part.content))
    return part if isinstance(part, ToolCallPart) else None
