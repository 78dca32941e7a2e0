"""What a session may hold, and how to tell that it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from perdure.interop.formats.items import meta_of, source_of
from perdure.session.codec import Body, body_of
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import SessionInfo, StreamHeader
from perdure.session.kinds import (
    BranchSummary,
    Compaction,
    Custom,
    CustomMessage,
    ModelChange,
    ThinkingChange,
)
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from perdure.session.notes import ImportedRecord, Label, LeafMoved
from perdure.stores.protocol import SessionStore
from tests.fakes.clock import START_MS


class Held(msgspec.Struct, frozen=True):
    """All of one session."""

    header: StreamHeader
    info: SessionInfo
    leaf: EntryId | None
    entries: tuple[Entry, ...]
    bodies: tuple[Body, ...]
    aliases: dict[str, EntryId]

    def messages(self) -> Iterator[Message]:
        """What was said."""
        yield from (body for body in self.bodies if isinstance(body, Message))

    def parts(self, sort: type[Part]) -> Iterator[Part]:
        """The parts of a sort, of messages of extensions too."""
        for body in self.bodies:
            if isinstance(body, Message | CustomMessage):
                yield from (part for part in body.parts if isinstance(part, sort))

    def has(self, sort: type[Body]) -> bool:
        """Whether there is an entry of a sort."""
        return any(isinstance(body, sort) for body in self.bodies)


async def held(store: SessionStore, stream: StreamId) -> Held:
    """The session `stream`."""
    state = await store.state(stream)
    entries = tuple(await store.entries(stream))
    bodies = tuple(map(body_of, entries))
    aliases = await store.aliases(stream)
    return Held(state.header, state.info, state.leaf, entries, bodies, aliases)


def _media(session: Held, beginning: str) -> bool:
    found = [part for part in session.parts(MediaPart) if isinstance(part, MediaPart)]
    for part in session.parts(ToolResultPart):
        found += part.media if isinstance(part, ToolResultPart) else ()
    return any(part.mime_type.startswith(beginning) for part in found)


def _has_parallel_calls(session: Held) -> bool:
    """Two calls were made before either was answered, and both have been."""
    calls: list[str] = []
    for message in session.messages():
        calls += [call.id for call in message.tool_calls]
        results = {part.call_id for part in message.parts if isinstance(part, ToolResultPart)}
        if results and len(calls) > 1:
            answered = {
                part.call_id
                for part in session.parts(ToolResultPart)
                if isinstance(part, ToolResultPart)
            }
            return set(calls) <= answered
        if results:
            calls = []
    return False


def _has_branches(session: Held) -> bool:
    parents = [entry.parent_id for entry in session.entries if entry.lane == "tree"]
    return len(parents) > len(set(parents))


def _has_files(session: Held) -> bool:
    summaries = [b for b in session.bodies if isinstance(b, Compaction | BranchSummary)]
    return any(body.read_files or body.modified_files for body in summaries)


def _is_kept_verbatim(body: Body) -> bool:
    return isinstance(body, Compaction) and bool(body.retained)


def _has_times(session: Held) -> bool:
    times = {entry.at for entry in session.entries if entry.kind == "message"}
    return START_MS not in times and session.header.created_at != START_MS


FEATURES: dict[str, Callable[[Held], bool]] = {
    "what was said, by whom": lambda s: {"user", "assistant"} <= {m.role for m in s.messages()},
    "reasoning that can be read": lambda s: any(
        isinstance(part, ThinkingPart) and part.text for part in s.parts(ThinkingPart)
    ),
    "tool calls with their arguments": lambda s: any(
        isinstance(part, ToolCallPart) and part.args for part in s.parts(ToolCallPart)
    ),
    "tool results, failures told apart": lambda s: any(
        isinstance(part, ToolResultPart) and part.is_error for part in s.parts(ToolResultPart)
    ),
    "several calls at once, all answered": _has_parallel_calls,
    "images, as blobs": lambda s: _media(s, "image/"),
    "sound, as blobs": lambda s: _media(s, "audio/"),
    "the model of each answer": lambda s: any(m.model for m in s.messages()),
    "changes of the model": lambda s: s.has(ModelChange),
    "changes of the thinking level": lambda s: s.has(ThinkingChange),
    "tokens used": lambda s: any(m.usage for m in s.messages()),
    "what it cost": lambda s: any(
        m.usage is not None and m.usage.cost_microcents for m in s.messages()
    ),
    "how each answer ended": lambda s: any(m.stop_reason for m in s.messages()),
    "errors of answers": lambda s: any(m.error for m in s.messages()),
    "branches": _has_branches,
    "going back, as an entry": lambda s: any(
        isinstance(body, LeafMoved) and (source := source_of(entry.body)) and source.length
        for entry, body in zip(s.entries, s.bodies, strict=True)
    ),
    "labels": lambda s: s.has(Label),
    "the title": lambda s: any(entry.kind == "session_info" for entry in s.entries),
    "compactions and what they keep": lambda s: any(
        isinstance(body, Compaction) and (body.first_kept or body.retained) for body in s.bodies
    ),
    "messages kept verbatim by a compaction": lambda s: any(map(_is_kept_verbatim, s.bodies)),
    "summaries of branches": lambda s: s.has(BranchSummary),
    "files read and modified, of summaries": _has_files,
    "state of extensions": lambda s: any(
        isinstance(body, Custom) and body.data is not None for body in s.bodies
    ),
    "messages of extensions": lambda s: s.has(CustomMessage),
    "what a gateway said of a message": lambda s: any(
        "reactions" in meta_of(entry.body) for entry in s.entries
    ),
    "which agent a call started": lambda s: any("subagent" in meta_of(e.body) for e in s.entries),
    "the session an agent belongs to": lambda s: (
        s.header.origin == "subagent" and s.header.parent is not None
    ),
    "the working directory": lambda s: bool(s.header.cwd),
    "times": _has_times,
    "ids that can be looked up": lambda s: bool(s.aliases),
    "records beside the conversation": lambda s: s.has(ImportedRecord),
}
"""What is kept -> whether a session has it."""
