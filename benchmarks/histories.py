"""The same conversation in the file format of each program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from benchmarks.figures import CLOCK
from benchmarks.workload import turns
from perdure.client.clock import system_random
from perdure.interop.exports import ExportFormat, export_session
from perdure.session.codec import new_tree
from perdure.session.entries import NewEntry
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.messages import (
    Message,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    assistant,
    decode_message,
    user,
)
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write

Record = dict[str, object]

_AT = "2026-04-01T10:00:00.500Z"
SESSION = StreamId("0f6f3f0e-7d55-4c83-9d0a-6f3ad2b7b003")
_USAGE = {
    "input_tokens": 4,
    "cache_creation_input_tokens": 250,
    "cache_read_input_tokens": 50_000,
    "output_tokens": 300,
    "service_tier": "standard",
}


async def histories(seed: int, count: int) -> dict[str, bytes]:
    """Return a session of `count` turns in the file format of each program."""
    return await _recorded([entry for turn in turns(seed, count) for entry in turn])


async def chats(count: int) -> dict[str, bytes]:
    """Return `count` short questions and answers in each format, in lines of 170 to 450 bytes."""
    said = (new_tree(user("What of the pears?")), new_tree(assistant("There are seven.")))
    return await _recorded([*said] * count)


async def _recorded(entries: Sequence[NewEntry]) -> dict[str, bytes]:
    messages = [decode_message(entry.body) for entry in entries]
    return {
        "pi": await _exported(entries, "pi"),
        "operator": await _exported(entries, "operator"),
        "claude-code": _lines(_claude_code(messages)),
        "codex": _lines(_codex(messages)),
    }


async def _exported(entries: Sequence[NewEntry], format: ExportFormat) -> bytes:
    store = MemoryStore(clock=CLOCK, random=system_random)
    header = StreamHeader(SESSION, CLOCK.now_ms())
    write = Write(stream=SESSION, create=header, entries=tuple(entries))
    await store.commit(Commit(writes=(write,), at=CLOCK.now_ms()))
    return (await export_session(store, SESSION, format)).content


def _lines(records: Iterator[Record]) -> bytes:
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def _claude_code(messages: list[Message]) -> Iterator[Record]:
    for number, message in enumerate(messages):
        is_answer = message.role == "assistant"
        said: Record = {
            "role": "assistant" if is_answer else "user",
            "content": [_block(part) for part in message.parts],
        }
        if is_answer:
            said |= {"id": f"msg_{number}", "model": "claude-sonnet-4-5", "usage": _USAGE}
        yield {
            "parentUuid": f"0f6f3f0e-7d55-4c83-{number - 1:012}" if number else None,
            "isSidechain": False,
            "userType": "external",
            "cwd": "/home/ana/orchard",
            "sessionId": SESSION,
            "version": "2.1.40",
            "gitBranch": "main",
            "type": said["role"],
            "message": said,
            "uuid": f"0f6f3f0e-7d55-4c83-{number:012}",
            "timestamp": _AT,
        }


def _block(part: object) -> Record:
    match part:
        case ToolCallPart():
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": part.args}
        case ToolResultPart():
            return {"type": "tool_result", "tool_use_id": part.call_id, "content": part.text}
        case TextPart():
            return {"type": "text", "text": part.text}
        case _:
            raise TypeError(part)


def _codex(messages: list[Message]) -> Iterator[Record]:
    yield _line("session_meta", {"id": SESSION, "timestamp": _AT, "cwd": "/home/ana/orchard"})
    for message in messages:
        for part in message.parts:
            yield _line("response_item", _item(message, part))


def _line(kind: str, payload: Record) -> Record:
    return {"timestamp": _AT, "type": kind, "payload": payload}


def _item(message: Message, part: object) -> Record:
    match part:
        case ToolCallPart():
            arguments = msgspec.json.encode(part.args).decode()
            call = {"name": part.name, "arguments": arguments, "call_id": part.id}
            return {"type": "function_call", **call}
        case ToolResultPart():
            return {"type": "function_call_output", "call_id": part.call_id, "output": part.text}
        case TextPart():
            kind = "output_text" if message.role == "assistant" else "input_text"
            content = [{"type": kind, "text": part.text}]
            return {"type": "message", "role": message.role, "content": content}
        case _:
            raise TypeError(part)
