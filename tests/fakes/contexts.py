"""Contexts in a form that tests can compare."""

from __future__ import annotations

import msgspec

from perdure.context.build import Context
from perdure.context.emission import ContextMessage
from perdure.session.messages import Message, Part, ToolCallPart, ToolResultPart


def with_numbered_calls(context: Context) -> Context:
    """Return `context` with numbered call ids, so that contexts with other ids compare equal."""
    numbers: dict[str, str] = {}

    def numbered(part: Part) -> Part:
        if isinstance(part, ToolCallPart):
            number = numbers.setdefault(part.id, str(len(numbers)))
            return msgspec.structs.replace(part, id=number)
        if isinstance(part, ToolResultPart):
            return msgspec.structs.replace(part, call_id=numbers[part.call_id])
        return part

    def message(each: Message) -> Message:
        return msgspec.structs.replace(each, parts=tuple(numbered(part) for part in each.parts))

    messages = tuple(
        ContextMessage(message(each.message), each.entry_id, each.merged)
        for each in context.messages
    )
    return msgspec.structs.replace(context, messages=messages)
