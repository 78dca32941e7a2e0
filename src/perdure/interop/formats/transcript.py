"""A session for display: the tree as numbered lines, parts as plain text, results with times.

This module is pure and contains no syntax of an output format: Markdown and HTML are both made from
a `Transcript`. An HTML page contains the `Transcript` as JSON (`encode`). The script of the page
reads the names and defaults that this module defines.
Shape: each `number` counts the tree entries from 0 in log order; parents come before their
children.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from perdure.interop.formats.bundles import FinalState, branch_of, standing_of
from perdure.interop.formats.losses import Losses
from perdure.interop.formats.native import Bundle
from perdure.session.codec import Body, Unknown, encode, readable
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, blob_hash
from perdure.session.info import is_command
from perdure.session.kinds import (
    OPAQUE,
    BranchSummary,
    Compaction,
    Custom,
    CustomMessage,
    ModelChange,
    ThinkingChange,
)
from perdure.session.ledger import ToolFinished
from perdure.session.media.inline import SCHEME
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
    Usage,
)
from perdure.session.notes import (
    CompactionUndone,
    ImportedRecord,
    ImportSource,
    Label,
    LeafMoved,
    SessionInfoChanged,
)

_BRIEF_CHARS = 160
_STATES = frozenset({"langgraph.checkpoint"})
"""Types of custom entries with the serialized state of a program; only name and size are shown."""

STATE = "state"
"""Role of the transcript lines for entries with the serialized state of a program."""

_TOLD = frozenset(
    note.kind
    for note in (
        Label,
        LeafMoved,
        SessionInfoChanged,
        CompactionUndone,
        ImportSource,
        ImportedRecord,
        ToolFinished,
    )
)
"""Kinds of side entries that are shown or describe a file; they do not count as omitted."""


class Said(msgspec.Struct, frozen=True, tag="text"):
    """A text part of a message."""

    text: str


class Thought(msgspec.Struct, frozen=True, omit_defaults=True, tag="thinking"):
    """A thinking part of a message: reasoning of a model."""

    text: str
    is_redacted: bool = False


class Medium(msgspec.Struct, frozen=True, omit_defaults=True, tag="media"):
    """An image or other bytes; `data` is the base64 text of the bytes if the store has them."""

    mime_type: str
    byte_length: int
    name: str | None = None
    data: str | None = None


class Called(msgspec.Struct, frozen=True, tag="call"):
    """A tool call.

    `args` is indented JSON; `brief` is the most informative argument on one line.
    """

    id: str
    name: str
    brief: str
    args: str


class Result(msgspec.Struct, frozen=True, omit_defaults=True, tag="result"):
    """The result of a tool.

    `outcome` and `duration_ms` are perdure's own record of the tool's run.
    """

    call_id: str
    text: str
    is_error: bool = False
    name: str | None = None
    media: tuple[Medium, ...] = ()
    outcome: str | None = None
    duration_ms: int | None = None


class Strange(msgspec.Struct, frozen=True, tag="unknown"):
    """A part or a body that this version does not know, as JSON or as displayable text."""

    text: str


Piece = Said | Thought | Medium | Called | Result | Strange


class TranscriptLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of the tree.

    Shape: `id` is the id in the store, which names another session if a fork shares the entry. For
    a message, `role` is the role of the message. For a stored state of another program, `role` is
    `STATE`. For any other entry, `role` is the kind of the entry. `first_kept` is the number of the
    first entry that a compaction keeps, or None if it keeps no earlier entries. `is_outside` means
    that the line is never sent to a model.
    Units: `at` is Unix milliseconds; `cost_microcents` is in units of 1e-8 US dollars.
    """

    number: int
    id: str
    role: str
    at: int
    pieces: tuple[Piece, ...]
    parent: int | None = None
    label: str | None = None
    name: str | None = None
    model: str | None = None
    tokens: int | None = None
    cost_microcents: int | None = None
    stop_reason: str | None = None
    error: str | None = None
    first_kept: int | None = None
    tokens_before: int | None = None
    is_undone: bool = False
    is_outside: bool = False


class Facts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts about the whole session; sums are over all branches.

    `redacted` maps each kind of redacted value to the number of distinct values.
    """

    id: str
    created_at: int
    origin: str
    title: str | None = None
    cwd: str | None = None
    models: tuple[str, ...] = ()
    messages: int = 0
    tokens: int = 0
    cost_microcents: int | None = None
    system_prompt: str | None = None
    redacted: Mapping[str, int] = {}


class Transcript(msgspec.Struct, frozen=True):
    """A session for display. `leaf` is the number of the entry at the end of the current branch."""

    facts: Facts
    lines: tuple[TranscriptLine, ...]
    leaf: int | None

    def branch(self, leaf: int | None) -> list[TranscriptLine]:
        """Return the lines from the root to `leaf`."""
        path: list[TranscriptLine] = []
        while leaf is not None:
            path.append(self.lines[leaf])
            leaf = path[-1].parent
        return path[::-1]

    def leaves(self) -> list[int]:
        """Return the numbers of the lines without children."""
        parents = {line.parent for line in self.lines}
        return [line.number for line in self.lines if line.number not in parents]


def without_tools(transcript: Transcript) -> Transcript:
    """Return `transcript` without tool calls and results.

    Lines that contain nothing else are removed.
    """
    told: list[TranscriptLine] = []
    renumbered: dict[int | None, int | None] = {None: None}  # a dropped line: to the one above it
    kept: dict[int, int] = {}
    for line in transcript.lines:
        pieces = tuple(each for each in line.pieces if not isinstance(each, Called | Result))
        above = renumbered.get(line.parent)
        if line.pieces and not pieces and not line.error:
            renumbered[line.number] = above
            continue
        first = line.first_kept
        if first is not None:  # of a dropped line: the next one on the branch that is left
            after = (each.number for each in transcript.branch(line.parent) if each.number >= first)
            first = next((kept[number] for number in after if number in kept), None)
        kept[line.number] = renumbered[line.number] = len(told)
        told.append(_with(line, pieces=pieces, parent=above, number=len(told), first_kept=first))
    leaf = renumbered.get(transcript.leaf)
    return Transcript(transcript.facts, tuple(told), leaf)


def without_instructions(transcript: Transcript) -> Transcript:
    """Return `transcript` without the instructions of its agent."""
    facts = msgspec.structs.replace(transcript.facts, system_prompt=None)
    return msgspec.structs.replace(transcript, facts=facts)


def transcript_of(bundle: Bundle, redacted: Mapping[str, int] | None = None) -> Transcript:
    """Return the session in `bundle`; `redacted` counts the values that redaction replaced."""
    standing = standing_of(bundle)
    built = _Lines(bundle, standing)
    lines = tuple(built.lines())
    return Transcript(
        facts=_facts(bundle, standing, lines, redacted or {}),
        lines=lines,
        leaf=None if standing.leaf is None else built.numbers.get(standing.leaf),
    )


def losses_of(bundle: Bundle, *, is_branch: bool) -> list[str]:
    """Describe the content of `bundle` that a transcript omits.

    If `is_branch` is True, the transcript also omits the other branches.
    """
    states = sum(_is_state(entry) for entry in bundle.entries)
    left = Counter(e.kind for e in bundle.entries if e.lane == "side" and e.kind not in _TOLD)
    lost = Losses()
    lost.add_header(bundle.header)
    for entry in bundle.entries:
        lost.add_meta(entry)
    found = lost.texts()
    if left:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(left.items()))
        found.append(f"{left.total()} side entries left out ({kinds})")
    if states:
        found.append(f"states that are named, not shown: {states}")
    if is_branch:
        path = {entry.id for entry in branch_of(bundle, standing_of(bundle).leaf)}
        others = sum(e.lane == "tree" and e.id not in path for e in bundle.entries)
        if others:
            found.append(f"{others} entries of other branches left out; add --all-branches")
    return found


def _is_state(entry: Entry) -> bool:
    body = readable(entry) if entry.kind == Custom.kind else None
    return isinstance(body, Custom) and body.custom_type in _STATES


def _facts(
    bundle: Bundle,
    standing: FinalState,
    lines: Iterable[TranscriptLine],
    redacted: Mapping[str, int],
) -> Facts:
    models: dict[str, None] = {}
    messages, usage = 0, Usage()
    for entry in bundle.entries:
        match readable(entry) if entry.lane == "tree" else None:
            case Message() as message:
                messages += 1
                usage += message.usage or Usage()
                if message.model:
                    models[message.model] = None
            case _:
                pass
    return Facts(
        id=bundle.header.id,
        created_at=bundle.header.created_at,
        origin=bundle.header.origin,
        title=standing.title or _first_words(lines),
        cwd=standing.cwd,
        models=tuple(models),
        messages=messages,
        tokens=usage.total_tokens,
        cost_microcents=usage.cost_microcents,
        system_prompt=standing.system_prompt,
        redacted=redacted,
    )


def _first_words(lines: Iterable[TranscriptLine]) -> str | None:
    """Return the start of the first user message that is not a slash command, if there is one."""
    command: str | None = None
    for line in lines:
        if line.role == "user":
            text = " ".join(p.text for p in line.pieces if isinstance(p, Said))
            words = brief(text, 60) or None
            if words is None or not is_command(words):
                return words or command
            command = command or words
    return command


def brief(text: str, width: int = _BRIEF_CHARS) -> str:
    """Return the beginning of `text` on one line of at most `width` characters."""
    line = " ".join(text[: 4 * width].split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


class _Lines:
    def __init__(self, bundle: Bundle, standing: FinalState) -> None:
        self._tree = [entry for entry in bundle.entries if entry.lane == "tree"]
        self.numbers: dict[EntryId, int] = {e.id: n for n, e in enumerate(self._tree)}
        self._stored_ids = bundle.stored_ids
        self._standing = standing
        self._media = {SCHEME + blob_hash(content): content for content in bundle.blobs}
        self._runs = _runs(bundle.entries)

    def lines(self) -> Iterable[TranscriptLine]:
        """Yield a line for each tree entry."""
        for number, entry in enumerate(self._tree):
            above = None if entry.parent_id is None else self.numbers.get(entry.parent_id)
            line = TranscriptLine(
                number=number,
                id=self._stored_ids.get(entry.id, entry.id),
                role=entry.kind,
                at=entry.at,
                pieces=(),
                parent=above if above is not None and above < number else None,
                label=self._standing.labels.get(entry.id),
            )
            yield self._fill_line(line, entry, readable(entry))

    def _fill_line(self, line: TranscriptLine, entry: Entry, body: Body) -> TranscriptLine:
        match body:
            case Message():
                return self._message(line, body)
            case Compaction():
                return self._compaction(line, entry, body)
            case BranchSummary(summary=text):
                return _with(line, pieces=(Said(text),))
            case ModelChange(model=text) | ThinkingChange(level=text):
                return _with(line, name=text, is_outside=True)
            case CustomMessage():
                pieces = self._pieces(body.parts)
                return _with(
                    line, name=body.custom_type, pieces=pieces, is_outside=not body.in_context
                )
            case Custom():
                return _custom(line, entry, body)
            case Unknown(raw=raw):
                is_erased = entry.is_erased and entry.kind != OPAQUE
                shown = Said("(erased)") if is_erased else Strange(raw.decode(errors="replace"))
                return _with(line, pieces=(shown,), is_outside=True)
            case _:
                return line

    def _message(self, line: TranscriptLine, body: Message) -> TranscriptLine:
        usage = body.usage or Usage()
        return _with(
            line,
            role=body.role,
            pieces=self._pieces(body.parts),
            model=body.model,
            tokens=usage.total_tokens or None,
            cost_microcents=usage.cost_microcents,
            stop_reason=body.stop_reason,
            error=body.error,
        )

    def _compaction(self, line: TranscriptLine, entry: Entry, body: Compaction) -> TranscriptLine:
        kept = None if body.first_kept is None else self.numbers.get(body.first_kept)
        return _with(
            line,
            pieces=(Said(body.summary),),
            first_kept=kept,
            tokens_before=body.tokens_before,
            is_undone=entry.id in self._standing.undone,
        )

    def _pieces(self, parts: Iterable[Part]) -> tuple[Piece, ...]:
        return tuple(self._piece(part) for part in parts)

    def _piece(self, part: Part) -> Piece:
        match part:
            case TextPart():
                return Said(part.text)
            case ThinkingPart():
                return Thought(part.text, part.is_redacted)
            case MediaPart():
                return self._medium(part)
            case ToolCallPart():
                return Called(part.id, part.name, _call_brief(part), _indent_json(part.args))
            case ToolResultPart():
                return self._result(part)
            case UnknownPart():
                return Strange(bytes(part.raw).decode(errors="replace"))

    def _medium(self, part: MediaPart) -> Medium:
        content = self._media.get(part.handle)
        data = None if content is None else b64encode(content).decode()
        return Medium(part.mime_type, part.byte_length, part.name, data)

    def _result(self, part: ToolResultPart) -> Result:
        run = self._runs.get(part.call_id)
        return Result(
            call_id=part.call_id,
            text=part.text,
            is_error=part.is_error,
            name=part.name,
            media=tuple(self._medium(medium) for medium in part.media),
            outcome=None if run is None else run.outcome,
            duration_ms=None if run is None else run.duration_ms,
        )


def _custom(line: TranscriptLine, entry: Entry, body: Custom) -> TranscriptLine:
    name = body.custom_type
    if name in _STATES:
        return _with(line, role=STATE, name=f"{name}, {len(entry.body):,} bytes", is_outside=True)
    pieces = () if body.data is None else (Strange(_indent_json(body.data)),)
    return _with(line, name=name, pieces=pieces, is_outside=True)


def _with(line: TranscriptLine, **changes: object) -> TranscriptLine:
    return msgspec.structs.replace(line, **changes)


def _runs(entries: Iterable[Entry]) -> dict[str, ToolFinished]:
    """Map the id of each call to the way the call ended."""
    found: dict[str, ToolFinished] = {}
    for entry in entries:
        if entry.kind == ToolFinished.kind and isinstance(run := readable(entry), ToolFinished):
            found[run.id] = run
    return found


def _call_brief(call: ToolCallPart) -> str:
    for value in call.args.values():
        if isinstance(value, str) and value.strip():
            return brief(value)
    return brief(encode(call.args).decode()) if call.args else ""


def _indent_json(value: object) -> str:
    return msgspec.json.format(encode(value), indent=2).decode()
