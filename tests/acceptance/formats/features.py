"""The features of a session as facts that tests can compare after an export and an import.

A format keeps the facts that are read back from its files. A fact contains no ids of entries,
because every store creates new ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import cast

import msgspec

from perdure.codecs.fields import fields_of
from perdure.codecs.shared_keys import meta_of
from perdure.interop.formats.items import IMPORT
from perdure.session.codec import Body, body_of, encode
from perdure.session.entries import Entry
from perdure.session.fold import labels_of
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
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from perdure.session.notes import ImportedRecord, LeafMoved, source_of
from perdure.session.tree import branch_to
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import START_MS


class Held(msgspec.Struct, frozen=True):
    """The stored content of one session: its header, info, leaf, entries and aliases."""

    header: StreamHeader
    info: SessionInfo
    leaf: EntryId | None
    entries: tuple[Entry, ...]
    bodies: tuple[Body, ...]
    aliases: dict[str, EntryId]

    def messages(self) -> Iterator[Message]:
        """Yield the messages of the session."""
        yield from (body for body in self.bodies if isinstance(body, Message))

    def parts(self, sort: type[Part]) -> Iterator[Part]:
        """The parts of one kind, including those in messages of extensions."""
        for body in self.bodies:
            if isinstance(body, Message | CustomMessage):
                yield from (part for part in body.parts if isinstance(part, sort))

    def body(self, entry: EntryId | None) -> Body | None:
        """The body of an entry."""
        pairs = zip(self.entries, self.bodies, strict=True)
        return next((body for each, body in pairs if each.id == entry), None)


async def held(store: SessionStore, stream: StreamId) -> Held:
    """Read the session `stream`."""
    state = await store.state(stream)
    entries = tuple(await store.entries(stream))
    bodies = tuple(map(body_of, entries))
    aliases = await store.aliases(stream)
    return Held(state.header, state.info, state.leaf, entries, bodies, aliases)


Facts = Iterable[Hashable]


def _said_by(session: Held, entry: EntryId | None) -> str:
    """Return the text of the entry, its kind if it has no text, or "" if `entry` is None."""
    body = session.body(entry)
    match body:
        case Message() | CustomMessage():
            return "\n".join(words_of(body))
        case Compaction() | BranchSummary():
            return body.summary
        case _:
            return "" if body is None else type(body).kind


def words_of(body: Message | CustomMessage) -> list[str]:
    """Return the texts in the parts of a message, then the names of the tools that it calls."""
    texts = [part.text for part in body.parts if isinstance(part, TextPart | ToolResultPart)]
    return [*texts, *(part.name for part in body.parts if isinstance(part, ToolCallPart))]


def _path(session: Held, leaf: EntryId | None) -> tuple[str, ...]:
    """Return the texts of the messages on the path from the root to `leaf`."""
    tree = {entry.id: entry for entry in session.entries if entry.lane == "tree"}
    bodies = (session.body(e.id) for e in branch_to(leaf, tree) if e.kind == "message")
    texts = (text for body in bodies if isinstance(body, Message) for text in words_of(body))
    return tuple(text for text in texts if text)


def _messages(session: Held) -> Facts:
    for message in session.messages():
        if message.role != "tool":
            texts = (part.text for part in message.parts if isinstance(part, TextPart))
            yield from ((message.role, text) for text in texts if text)


def _results(session: Held) -> Facts:
    for part in session.parts(ToolResultPart):
        assert isinstance(part, ToolResultPart)
        yield part.call_id, part.text, part.is_error


def _calls(session: Held) -> Facts:
    for part in session.parts(ToolCallPart):
        assert isinstance(part, ToolCallPart)
        yield part.id, part.name, encode(part.args)


def _parallel_calls(session: Held) -> Facts:
    """Yield the ids of each group of parallel calls of which every call has a result."""
    answered = {call_id for call_id, *_ in cast("Iterable[tuple[str]]", _results(session))}
    calls: list[str] = []
    for message in session.messages():
        if any(isinstance(part, ToolResultPart) for part in message.parts):
            if len(calls) > 1 and set(calls) <= answered:
                yield tuple(calls)
            calls = []
        calls += [call.id for call in message.tool_calls]


def _media(beginning: str) -> Callable[[Held], Facts]:
    def facts(session: Held) -> Facts:
        found = [part for part in session.parts(MediaPart) if isinstance(part, MediaPart)]
        for part in session.parts(ToolResultPart):
            found += part.media if isinstance(part, ToolResultPart) else ()
        return [part.handle for part in found if part.mime_type.startswith(beginning)]

    return facts


def _thoughts(session: Held) -> Facts:
    parts = (part for part in session.parts(ThinkingPart) if isinstance(part, ThinkingPart))
    return [part.text for part in parts if part.text]


def _withheld(session: Held) -> Facts:
    parts = (part for part in session.parts(ThinkingPart) if isinstance(part, ThinkingPart))
    return ["withheld" for part in parts if part.is_redacted]


def _branches(session: Held) -> Facts:
    """The messages of every branch, if there are several."""
    tree = [entry for entry in session.entries if entry.lane == "tree"]
    if len({entry.parent_id for entry in tree}) == len(tree):
        return []
    messages = [entry for entry in tree if entry.kind == "message"]
    return {_path(session, entry.id) for entry in messages}


def _kept(session: Held) -> Facts:
    """Yield the summary of each compaction, and the texts of the messages that it keeps."""
    tree = {entry.id: entry for entry in session.entries if entry.lane == "tree"}
    for entry, body in zip(session.entries, session.bodies, strict=True):
        if not isinstance(body, Compaction):
            continue
        kept = list(body.retained or ())
        if body.first_kept is not None:
            path = [each.id for each in branch_to(entry.parent_id, tree)]
            ids = path[path.index(body.first_kept) :] if body.first_kept in path else []
            kept = [each for each in map(session.body, ids) if isinstance(each, Message)]
        texts = [text for message in kept for text in words_of(message) if text]
        if texts:
            yield body.summary, *texts


def _retained(session: Held) -> Facts:
    for body in session.bodies:
        if isinstance(body, Compaction) and body.retained:
            yield tuple(text for message in body.retained for text in words_of(message))


def _labels(session: Held) -> Facts:
    for target, label in labels_of(session.entries).items():
        yield label, _said_by(session, target)


def _summaries(session: Held) -> Iterator[Compaction | BranchSummary]:
    yield from (body for body in session.bodies if isinstance(body, Compaction | BranchSummary))


def _summary_usage(session: Held) -> Facts:
    return [body.usage.total_tokens for body in _summaries(session) if body.usage is not None]


def _files(session: Held) -> Facts:
    found = ((body.read_files, body.modified_files) for body in _summaries(session))
    return [each for each in found if any(each)]


def _branch_summaries(session: Held) -> Facts:
    summaries = [body for body in session.bodies if isinstance(body, BranchSummary)]
    return [(body.summary, _said_by(session, body.from_id)) for body in summaries]


def _returns(session: Held) -> Facts:
    """Return the positions of the imported entries that move the leaf."""
    return [
        n
        for n, (entry, body) in enumerate(zip(session.entries, session.bodies, strict=True))
        if isinstance(body, LeafMoved) and (source := source_of(entry.body)) and source.length
    ]


def _numbered(facts: Callable[[Held], Facts]) -> Callable[[Held], Facts]:
    """Replace the facts by 0, 1, 2, …, so that a comparison depends only on their number."""
    return lambda session: list(range(len(list(facts(session)))))


def _extension_messages(session: Held) -> Facts:
    for body in session.bodies:
        if isinstance(body, CustomMessage):
            yield body.custom_type, *words_of(body), body.in_context


def _state(session: Held) -> Facts:
    states = [body for body in session.bodies if isinstance(body, Custom)]
    return [(body.custom_type, encode(body.data)) for body in states if body.data is not None]


_GATEWAY = frozenset({"reply_to", "channel_message_id", "attachments", "reactions"})
_AGENTS = frozenset({"subagent"})


def _meta(wanted: Callable[[str], bool]) -> Callable[[Held], Facts]:
    def facts(session: Held) -> Facts:
        for entry in session.entries:
            for name, value in meta_of(entry.body).items():
                if wanted(name):
                    yield name, encode(value)

    return facts


def _header(session: Held) -> Facts:
    """Return the imported data about the session, except `format` and `session`."""
    described = fields_of((session.header.metadata or {}).get(IMPORT)) or {}
    return [
        (name, encode(value))
        for name, value in described.items()
        if name not in ("format", "session")
    ]


def _times(session: Held) -> Facts:
    entries = [entry for entry in session.entries if entry.kind == "message"]
    times = {entry.at for entry in entries if entry.at != START_MS}
    return [*times, ("begun", session.header.created_at)]


def _costs(session: Held) -> Facts:
    costs = [m.usage.cost_microcents for m in session.messages() if m.usage is not None]
    return [cost for cost in costs if cost]


def _usage(session: Held) -> Facts:
    used = [message.usage for message in session.messages() if message.usage is not None]
    return [encode(msgspec.structs.replace(usage, cost_microcents=None)) for usage in used]


def _ends(session: Held) -> Facts:
    return [message.stop_reason for message in session.messages() if message.stop_reason]


def _models(session: Held) -> Facts:
    """Yield the model that each answer names, or else the current model of its branch."""
    in_force: dict[EntryId | None, str] = {}
    for entry, body in zip(session.entries, session.bodies, strict=True):
        if entry.lane == "tree" and entry.parent_id in in_force:
            in_force[entry.id] = in_force[entry.parent_id]
        if isinstance(body, ModelChange):
            in_force[entry.id] = body.model
        if isinstance(body, Message) and body.role == "assistant":
            model = body.model or in_force.get(entry.id)
            yield from () if model is None else (model,)


def _changes(sort: type[ModelChange | ThinkingChange]) -> Callable[[Held], Facts]:
    return lambda session: [encode(body) for body in session.bodies if type(body) is sort]


FEATURES: dict[str, Callable[[Held], Facts]] = {
    "messages and their roles": _messages,
    "the current leaf": lambda s: [_path(s, s.leaf)],
    "readable reasoning": _thoughts,
    "a mark for withheld reasoning": _withheld,
    "tool calls with their arguments": _calls,
    "tool results, with failures marked": _results,
    "several calls in one answer, each with its result": _parallel_calls,
    "images": _media("image/"),
    "audio": _media("audio/"),
    "the model of each answer": _models,
    "model changes": _changes(ModelChange),
    "thinking level changes": _changes(ThinkingChange),
    "tokens used": _usage,
    "tokens used by summaries": _summary_usage,
    "cost": _costs,
    "stop reasons": _ends,
    "errors of failed answers": lambda s: [m.error for m in s.messages() if m.error],
    "branches": _branches,
    "navigation entries (a moved leaf)": _numbered(_returns),
    "labels": _labels,
    "title": lambda s: [s.info.title] if s.info.title else [],
    "compactions and the entries they keep": _kept,
    "messages that a compaction retains verbatim": _retained,
    "branch summaries": _branch_summaries,
    "files read and modified, in summaries": _files,
    "extension state": _state,
    "extension messages": _extension_messages,
    "gateway data of a message": _meta(_GATEWAY.__contains__),
    "the agent that a call started": _meta(_AGENTS.__contains__),
    "other fields of a message": _meta(lambda name: name not in _GATEWAY | _AGENTS),
    "the parent session of a subagent": lambda s: (
        [s.header.parent] if s.header.origin == "subagent" and s.header.parent else []
    ),
    "other fields of the session": _header,
    "working directory": lambda s: [s.info.cwd] if s.info.cwd else [],
    "timestamps": _times,
    "foreign ids, for lookup": lambda s: s.aliases.keys(),
    "records outside the conversation": lambda s: [
        body.type for body in s.bodies if isinstance(body, ImportedRecord)
    ],
}
"""For each feature, the function that returns the facts about this feature in a session."""


def facts_of(feature: str, session: Held) -> Counter[Hashable]:
    """The facts of `feature` in `session`, each as often as it occurs."""
    return Counter(FEATURES[feature](session))
