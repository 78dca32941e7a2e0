"""Session names, origins and counts for lists, updated with each appended entry.

A store contains one `SessionInfo` per stream and replaces it with `info_after` inside each commit.
Lists never read entries. All backends use this module, so their titles and counts are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import repeat
from typing import Literal, TypedDict, cast

import msgspec

from perdure.bounds.short_repr import ShortRepr
from perdure.errors import CorruptLog, UnsupportedVersion
from perdure.secrets.mask import mask_secrets, mask_start
from perdure.session.codec import Body, readable, role_of
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.ledger import TurnFinished, TurnStarted
from perdure.session.messages import MESSAGE, Message, typed_text
from perdure.session.notes import (
    ContentErased,
    ImportSource,
    SessionEnded,
    SessionExported,
    SessionInfoChanged,
    SessionReceived,
    SessionReopened,
)

StreamKind = Literal["session", "flow", "memory"]
Origin = Literal["user", "role", "subagent", "import", "knowledge"]
"""What created a session. ``knowledge`` means that it contains a file of a knowledge folder."""
Status = Literal["active", "importing", "exported", "ended", "erased"]
"""Status of a session. ``importing`` also includes an import that was interrupted."""

SoughtStatus = Literal[Status, "interrupted"]
"""A status to filter lists by. ``interrupted`` means that no process runs the open turn."""

LISTED_STATUSES: tuple[Status, ...] = ("active", "importing", "exported", "ended")
"""Statuses of the sessions in lists: erased ones are never listed."""

SessionScope = Literal["listed", "all"]
"""Which sessions a list contains: those of origin user or import (``listed``), or ``all``.

Flows are never included.
"""

ORIGINS: Mapping[str, tuple[Origin, ...]] = {
    "listed": ("user", "import"),
    "all": ("user", "role", "subagent", "import", "knowledge"),
}
"""Scope of a list -> the origins of the sessions in it."""

IDLE_ORIGINS = tuple(origin for origin in ORIGINS["all"] if origin != "import")
"""The origins of sessions that perdure can end because they are idle."""

TITLE_LENGTH = 60
"""Maximum length of the name of a session without a title.

The name of such a session is the start of its first user message, without attached texts.
"""

_MASKED = 2_000
"""Number of characters of a message that are searched for secrets before its title is cut."""

_SPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)


class ForkPoint(msgspec.Struct, frozen=True):
    """The position where a stream was forked.

    `leaf` is the entry after which the fork continues. `leaf` None means that the fork continues
    before the root. `head` is the origin's head when the fork was made. The fork inherits the
    labels that were set up to `head`, but no later labels. If `scope` is "tree", the fork shares
    every branch up to `head`; if `scope` is "path", it shares only the branch that ends at `leaf`.
    """

    stream: StreamId
    leaf: EntryId | None
    head: int
    scope: Literal["tree", "path"]


class StreamHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """Immutable properties of a stream, set when it is created and part of its genesis hash.

    Units: `created_at` is Unix milliseconds. Shape: `metadata` is the client's own JSON object.
    `subject` names the person that the session is about, in the client's own words, so that all
    data of one person can be erased together. `received` counts the first entries of the stream
    that come from an imported file. Entries from an imported file grant no permissions. `received`
    is internal to the store and is not exported.
    """

    id: StreamId
    created_at: int
    kind: StreamKind = "session"
    origin: Origin = "user"
    cwd: str | None = None
    title: str | None = None
    parent: StreamId | None = None
    fork: ForkPoint | None = None
    metadata: dict[str, object] | None = None
    subject: str | None = None
    received: int = 0


class SessionInfo(ShortRepr, frozen=True):
    """One row in a list of sessions.

    Units: times are Unix milliseconds. Shape: `updated_at` is the time of the newest user or
    assistant message, so that reading or naming a session does not reorder the list. Before the
    first message, `updated_at` is the time of creation. `messages` counts every message entry,
    including tool results and the shared messages of a fork. `entries` counts the entries of the
    stream's own log. `turns` counts the turns started in the stream, without the turns before an
    import or a fork. `first_text` is the start of the first user message that is not just a slash
    command; it serves as the name of a session without a title. `subject` and `metadata` are copied
    from the session's header. `open_turn` is the seq of the ``turn_started`` of the open turn. An
    open turn runs in some process, waits for an answer, or was interrupted. `model` is the model to
    which the session's branch was switched, or else the model of its agent. Without an agent,
    `model` is the model of the last switch or answer. In lists, `model` is not set.
    """

    id: StreamId
    kind: StreamKind
    origin: Origin
    created_at: int
    updated_at: int
    title: str | None = None
    first_text: str | None = None
    cwd: str | None = None
    parent: StreamId | None = None
    messages: int = 0
    entries: int = 0
    turns: int = 0
    status: Status = "active"
    subject: str | None = None
    metadata: dict[str, object] | None = None
    model: str | None = None
    open_turn: int | None = None

    @property
    def is_role(self) -> bool:
        """Return True if the session is not a fork and belongs to a role in the flow `parent`."""
        return self.origin == "role" and self.id.startswith(f"{self.parent}__")

    @property
    def source(self) -> str | None:
        """Return the program that an imported session came from, such as "claude-code"."""
        described = (self.metadata or {}).get("import") if self.origin == "import" else None
        if not isinstance(described, Mapping):
            return None
        source = cast("Mapping[str, object]", described).get("format")
        return source if isinstance(source, str) else None

    @property
    def cursor(self) -> str:
        """Return the session's position in a newest-first list, for ``Store.recent(after=…)``."""
        return f"{self.updated_at}:{self.id}"

    @property
    def name(self) -> str:
        """Return the title on one line; without a title, the start of the first user message.

        Credentials in the message are masked, because older versions stored credentials.
        """
        return one_line(self.title) or mask_secrets(self.first_text or "")

    def __str__(self) -> str:
        """Return the id, status, counts and name on one printable line."""
        turn = ", turn open" if self.open_turn is not None else ""
        line = f"{self.id}  {self.status}{turn}, {self.messages} messages  {self.name}"
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line).rstrip()


class OpenTurn(msgspec.Struct, frozen=True):
    """A session with an open turn.

    `holder` is the owner of the session's lease; None if the lease is free or expired.
    """

    info: SessionInfo
    holder: str | None


def info_of(header: StreamHeader, shared: SessionInfo | None = None) -> SessionInfo:
    """Return the `SessionInfo` of a stream that has no entries of its own.

    If `header` is a fork, `shared` is the origin's info, whose counts and names the fork inherits.
    """
    parent = header.fork.stream if header.fork else header.parent
    start = SessionInfo(
        id=header.id,
        kind=header.kind,
        origin=header.origin,
        created_at=header.created_at,
        updated_at=header.created_at,
        title=trim_title(header.title),
        cwd=header.cwd,
        parent=parent,
        subject=header.subject,
        metadata=header.metadata,
    )
    if shared is None:
        return start
    return msgspec.structs.replace(
        start,
        title=start.title or shared.title,
        first_text=shared.first_text,
        cwd=start.cwd or shared.cwd,
        messages=shared.messages,
    )


def info_after(
    info: SessionInfo, entries: Iterable[Entry], bodies: Iterable[Body | None] = repeat(None)
) -> SessionInfo:
    """Return `info` after `entries` were appended. Unreadable entries are only counted.

    `bodies` are the decoded bodies of `entries`; None means that they are not decoded yet.
    """
    updated_at, first_text = info.updated_at, info.first_text
    added = messages = 0
    for entry, body in zip(entries, bodies, strict=False):
        added += 1
        if entry.kind != MESSAGE:
            if entry.kind in _AFTER:
                info = _AFTER[entry.kind](info, entry)
            continue
        messages += 1
        role = body.role if isinstance(body, Message) else role_of(entry)
        if role in ("user", "assistant"):
            updated_at = max(updated_at, entry.at)
            if role == "user" and (first_text is None or is_command(first_text)):
                first_text = _first_of(first_text, entry)
    return msgspec.structs.replace(
        info,
        entries=info.entries + added,
        messages=info.messages + messages,
        updated_at=updated_at,
        first_text=None if info.status == "erased" else first_text,
    )


def _after_import(info: SessionInfo, entry: Entry) -> SessionInfo:
    body = readable(entry)
    if not isinstance(body, ImportSource):
        return info
    if body.has_more:
        return msgspec.structs.replace(info, status="importing")
    return msgspec.structs.replace(info, status="active") if info.status == "importing" else info


def _after_erasure(info: SessionInfo, entry: Entry) -> SessionInfo:
    erased = erasure_in(entry)
    if erased is None or not erased.is_whole:
        return info
    return msgspec.structs.replace(
        info,
        status="erased",
        title=None,
        first_text=None,
        cwd=None,
        subject=None,
        metadata=None,
        open_turn=None,
    )


def erasure_in(entry: Entry) -> ContentErased | None:
    """Return the erasure that `entry` records for its own session; None if it records none."""
    if entry.kind != ContentErased.kind:
        return None
    body = readable(entry)
    return body if isinstance(body, ContentErased) else None


def redact(header: StreamHeader) -> StreamHeader:
    """Return the header of an erased session: only its id and its links to other streams."""
    return msgspec.structs.replace(header, title=None, cwd=None, metadata=None, subject=None)


class ListText(msgspec.Struct, frozen=True):
    """The fields of `SessionInfo` that lists take from messages, `first_text` and `updated_at`.

    `updated_at` is None if the session itself contains no message.
    """

    first_text: str | None
    updated_at: int | None


def listed_text(stream: StreamId, tree: Iterable[Entry]) -> ListText:
    """Return the text and the time that lists show for session `stream`.

    `tree` are the visible tree entries of the session, in order.
    """
    first_text: str | None = None
    times: list[int] = []
    for entry in tree:
        role = role_of(entry)
        if role == "user" and (first_text is None or is_command(first_text)):
            first_text = _first_of(first_text, entry)
        if role in ("user", "assistant") and entry.stream == stream:
            times.append(entry.at)
    return ListText(first_text, max(times, default=None))


_COMMAND = re.compile(r"/[A-Za-z][\w:.-]*|<(?:local-)?command-[a-z]+>.*")


def is_command(text: str) -> bool:
    """Return whether a message is only a slash command of some program, such as ``/mode``."""
    return _COMMAND.fullmatch(text) is not None


def _first_of(before: str | None, entry: Entry) -> str | None:
    """Return a session's first text, given the text `before` and the next user message `entry`.

    A slash command becomes the first text only if the session has no other text.
    """
    text = _beginning(entry)
    return before if text is None or (before is not None and is_command(text)) else text


def _beginning(entry: Entry) -> str | None:
    try:
        message = entry.message
    except (CorruptLog, UnsupportedVersion):
        return None
    if message is None:
        return None
    text = mask_start(typed_text(message).lstrip(), _MASKED)  # before the title is cut
    words = text.split(None, TITLE_LENGTH)  # the rest is never part of the start
    return shorten_title(" ".join(word[: TITLE_LENGTH + 1] for word in words) or None)


def _after_change(info: SessionInfo, entry: Entry) -> SessionInfo:
    body = readable(entry)
    if not isinstance(body, SessionInfoChanged):
        return info
    title = info.title if body.title is msgspec.UNSET else trim_title(body.title)
    cwd = info.cwd if body.cwd is msgspec.UNSET else body.cwd
    return msgspec.structs.replace(info, title=title, cwd=cwd)


def _after_turn_start(info: SessionInfo, entry: Entry) -> SessionInfo:
    return msgspec.structs.replace(info, turns=info.turns + 1, open_turn=entry.seq)


def _after_turn_end(info: SessionInfo, entry: Entry) -> SessionInfo:
    return msgspec.structs.replace(info, open_turn=None)


def _sets(status: Status) -> Callable[[SessionInfo, Entry], SessionInfo]:
    return lambda info, entry: msgspec.structs.replace(info, status=status)


_AFTER: Mapping[str, Callable[[SessionInfo, Entry], SessionInfo]] = {
    SessionInfoChanged.kind: _after_change,
    TurnStarted.kind: _after_turn_start,
    TurnFinished.kind: _after_turn_end,
    SessionExported.kind: _sets("exported"),
    SessionEnded.kind: _sets("ended"),
    SessionReopened.kind: _sets("active"),
    ContentErased.kind: _after_erasure,
    ImportSource.kind: _after_import,
}
"""Kind -> the function that updates a session's info after an entry of this kind."""


def with_description(info: SessionInfo, header: StreamHeader) -> SessionInfo:
    """Return the stored `info`, with the subject and the metadata of `header` added."""
    if header.subject is None and header.metadata is None:
        return info
    return msgspec.structs.replace(info, subject=header.subject, metadata=header.metadata)


def bare_info(info: SessionInfo) -> SessionInfo:
    """Return `info` without the subject and the metadata, which are stored in the header."""
    if info.subject is None and info.metadata is None:
        return info
    return msgspec.structs.replace(info, subject=None, metadata=None)


OWN_SOURCE = "perdure"
"""The `source` of sessions that were not imported from another program."""


def can_end_as_idle(info: SessionInfo) -> bool:
    """Return True if the session is active, was not imported, and has had a turn of perdure."""
    is_session = info.kind == "session" and info.origin in IDLE_ORIGINS
    return is_session and info.status == "active" and info.turns > 0


def newest_idle(infos: Iterable[SessionInfo], upto: int) -> list[StreamId]:
    """Return the sessions that can end as idle and had no activity after `upto`, newest first."""
    idle = [(i.updated_at, i.id) for i in infos if can_end_as_idle(i) and i.updated_at <= upto]
    return [stream for _, stream in sorted(idle, reverse=True)]


class Sought(TypedDict, total=False):
    """Filters for a list of sessions; a filter that is None or empty selects all sessions.

    `metadata` are values that the session's metadata must contain. `source` is the program that an
    imported session came from, or `OWN_SOURCE`. `after` is a position in a list with the newest
    session first; the list starts after this position.
    """

    subject: str | None
    metadata: Mapping[str, object] | None
    source: str | None
    status: Status | None
    id_prefix: str | None
    after: tuple[int, str] | None


def is_sought(info: SessionInfo, sought: Sought) -> bool:
    """Return True if `info`, with the metadata of its header, matches `sought`."""
    subject, status = sought.get("subject"), sought.get("status")
    if subject is not None and info.subject != subject:
        return False
    if status is not None and info.status != status:
        return False
    after, source = sought.get("after"), sought.get("source")
    if after is not None and (info.updated_at, info.id) >= after:
        return False
    if source is not None and (info.source or OWN_SOURCE) != source:
        return False
    own = info.metadata or {}
    return info.id.startswith(sought.get("id_prefix") or "") and all(
        key in own and own[key] == value for key, value in (sought.get("metadata") or {}).items()
    )


def stored_name(info: SessionInfo) -> str:
    """Return the unmasked name of a session; names from older versions can contain credentials.

    Lists and their indexes use the stored name for searches, but never display it.
    """
    return one_line(info.title) or info.first_text or ""


def is_found(info: SessionInfo, cwd: str | None, query: str | None) -> bool:
    """Return True if `info` belongs to `cwd` and its name or id contains `query`.

    The match is case-insensitive. A `cwd` or `query` of None matches all sessions. Erased sessions
    never match. The query is compared with the stored name. If a name is masked only for display,
    the query ``[redacted]`` does not match this name.
    """
    if info.status == "erased" or (cwd is not None and info.cwd != cwd):
        return False
    sought = (query or "").casefold()
    return not sought or sought in stored_name(info).casefold() or sought in info.id.casefold()


def newest_found(
    infos: Iterable[SessionInfo],
    scope: SessionScope,
    cwd: str | None,
    query: str | None,
    sought: Sought,
) -> list[SessionInfo]:
    """Return the sessions in `scope` that match `cwd`, `query` and `sought`, newest first."""
    near = (i for i in infos if i.kind == "session" and i.origin in ORIGINS[scope])
    found = [i for i in near if is_found(i, cwd, query) and is_sought(i, sought)]
    return sorted(found, key=lambda info: (info.updated_at, info.id), reverse=True)


def trim_title(title: str | None) -> str | None:
    """Return `title` without surrounding white space; None if nothing is left. Line breaks stay.

    White space is defined as in JavaScript, so that the program pi shows the same title.
    """
    return (title or "").strip(_SPACE) or None


def one_line(text: str | None) -> str | None:
    """Return `text` on one line, without surrounding space; None if nothing is left."""
    return " ".join((text or "").split()) or None


def shorten_title(text: str | None) -> str | None:
    """Return `text`; if it is longer than `TITLE_LENGTH`, cut it and add an ellipsis."""
    if text is None or len(text) <= TITLE_LENGTH:
        return text
    return text[: TITLE_LENGTH - 1].rstrip() + "…"


def received_entries(header: StreamHeader, stream: StreamId, notes: Iterable[Entry]) -> int:
    """Return how many entries at the beginning of `stream` were read from a perdure file."""
    told = [n.seq for n in notes if n.kind == SessionReceived.kind and n.stream == stream]
    return max(header.received, *told, 0)
