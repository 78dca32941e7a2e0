"""Remove secrets or identifying paths from a session: its header, entries, names and files.

The functions of this module are pure. Redaction inspects every string in every body, even field
names. Redaction also inspects the title, the working directory and the metadata. The stored copies
of imported files are removed, so the imported file cannot be rebuilt from the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, cast

import msgspec

from perdure.interop.formats.items import REDACTED, without_source
from perdure.interop.formats.native import Bundle
from perdure.interop.redaction.placeholders import REDACTIONS, Redactor
from perdure.interop.reports import Redaction
from perdure.secrets.shapes import is_secret_field
from perdure.session.codec import BODIES, encode, new_side, readable
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, blob_hash
from perdure.session.info import StreamHeader
from perdure.session.kinds import OPAQUE
from perdure.session.messages import Message
from perdure.session.notes import (
    ImportedRecord,
    ImportSource,
    SessionInfoChanged,
    SessionStarted,
    WorkspaceChanged,
)

_decoder = msgspec.json.Decoder()


@cache
def _vocabulary() -> frozenset[str]:
    """Return the fixed words of bodies: kinds, field names and the allowed values of fields.

    Redaction never treats one of the words in the result as a secret.
    """
    words: set[str] = set(BODIES)
    types = [Message, *BODIES.values()]
    _, components = msgspec.json.schema_components(types, schema_hook=lambda _: {"title": "any"})
    waiting: list[Any] = [components]
    while waiting:
        below = waiting.pop()
        if isinstance(below, list):
            waiting.extend(cast("list[Any]", below))
        elif isinstance(below, dict):
            fields = cast("dict[str, Any]", below)
            words.update(fields.get("properties", ()))
            words.update(each for each in fields.get("enum", ()) if isinstance(each, str))
            waiting.extend(fields.values())
    return frozenset(words)


class Redacted(msgspec.Struct, frozen=True):
    """A session after redaction.

    Shape: `counts` is the number of distinct replaced values by kind, and `places` is the number of
    replacements. `unseen` counts the media that could not be inspected, and `dropped` counts the
    text files that were removed because they contained a value to replace.
    """

    bundle: Bundle
    counts: Mapping[str, int]
    places: int
    unseen: int
    dropped: int


def redact(bundle: Bundle, sorts: Iterable[Redaction]) -> Redacted:
    """Return `bundle` with placeholders for all values of the kinds `sorts` (secrets, paths).

    Shape: ids, order and tree stay the same. A side entry replaces each stored copy of an imported
    file. The id of a fork's origin is replaced in `Bundle.stored_ids`, and removed from the header.
    """
    wanted = set(sorts)
    chosen: tuple[Redaction, ...] = tuple(sort for sort in REDACTIONS if sort in wanted)
    originals = _originals(bundle)
    values = [_Value.of(entry) for entry in bundle.entries]
    kept = _vocabulary() | {entry.id for entry in bundle.entries}
    redactor = Redactor(chosen, _folders(bundle), kept)
    plain_header = msgspec.to_builtins(bundle.header)
    sessions = {id.rpartition("/")[0] for id in bundle.stored_ids.values()}
    origins = sorted(sessions - {bundle.header.id})
    for value in (plain_header, origins, *(each.plain for each in values)):
        _learn(redactor, value)
    redactor.settle()
    header = _header(redactor, bundle.header, chosen)
    entries = tuple(
        _redacted_entry(redactor, entry, value)
        for entry, value in zip(bundle.entries, values, strict=True)
    )
    media = [blob for blob in bundle.blobs if blob_hash(blob) not in originals]
    shown = [blob for blob in media if not _holds_some(redactor, blob)]
    aliases = {name: id for name, id in bundle.aliases.items() if redactor.replace(name) == name}
    names = {origin: redactor.replace(origin) for origin in origins}
    stored_ids = {new: _renamed(id, names) for new, id in bundle.stored_ids.items()}
    return Redacted(
        bundle=Bundle(header, entries, aliases, tuple(shown), stored_ids),
        counts=redactor.counts,
        places=redactor.places,
        unseen=sum(_text(blob) is None for blob in shown),
        dropped=len(media) - len(shown),
    )


def _renamed(id: EntryId, names: Mapping[str, str]) -> EntryId:
    """Return the entry id `id` with its session id replaced according to `names`."""
    session, slash, seq = id.rpartition("/")
    return EntryId(names.get(session, session) + slash + seq)


class _Value(msgspec.Struct, frozen=True):
    """The body of an entry as plain data; text if the body is not JSON."""

    plain: object
    is_json: bool

    @classmethod
    def of(cls, entry: Entry) -> _Value:
        body = without_source(entry.body)
        if entry.kind == OPAQUE:
            return cls(body.decode("utf-8", "surrogateescape"), is_json=False)
        try:
            return cls(_decoder.decode(body), is_json=True)
        except (ValueError, RecursionError):
            return cls(body.decode("utf-8", "surrogateescape"), is_json=False)


def _originals(bundle: Bundle) -> set[str]:
    found: set[str] = set()
    for entry in bundle.entries:
        source = readable(entry) if entry.kind == ImportSource.kind else None
        if isinstance(source, ImportSource):
            found.add(source.blob)
    return found


def _folders(bundle: Bundle) -> Iterator[str]:
    """Yield the working directories that the session names."""
    if bundle.header.cwd:
        yield bundle.header.cwd
    for entry in bundle.entries:
        if entry.kind not in (SessionInfoChanged.kind, SessionStarted.kind, WorkspaceChanged.kind):
            continue
        match readable(entry):
            case SessionInfoChanged(cwd=str(folder)):
                yield folder
            case SessionStarted(workspace=dict(workspace)) | WorkspaceChanged(workspace=workspace):
                yield from (value for value in workspace.values() if isinstance(value, str))
            case _:
                pass


def _learn(redactor: Redactor, value: object) -> None:
    waiting: list[tuple[str, object]] = [("", value)]
    while waiting:
        name, below = waiting.pop()
        if isinstance(below, str):
            redactor.learn(below)
            if is_secret_field(name, below):
                redactor.learn_secret(below, "secret")
        elif isinstance(below, list):
            waiting.extend((name, item) for item in cast("list[object]", below))
        elif isinstance(below, dict):
            fields = cast("dict[str, object]", below)
            waiting.extend(fields.items())
            waiting.extend(("", key) for key in fields)


def _replace(redactor: Redactor, value: Any, name: str = "") -> Any:
    """Return `value` with all found values replaced; the same object if none was found."""
    if isinstance(value, str):
        if is_secret_field(name, value) and redactor.is_for("secrets"):
            return redactor.secret(value)
        return redactor.replace(value)
    if isinstance(value, list):
        return [_replace(redactor, item, name) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {
            redactor.replace(key): _replace(redactor, item, key) for key, item in fields.items()
        }
    return value


def _redacted_entry(redactor: Redactor, entry: Entry, value: _Value) -> Entry:
    if entry.kind == ImportSource.kind:
        return _note(entry, value)
    after = _replace(redactor, value.plain)
    body = without_source(entry.body)
    if after != value.plain:
        body = encode(after) if value.is_json else str(after).encode("utf-8", "surrogateescape")
    return msgspec.structs.replace(entry, body=body)


def _note(entry: Entry, value: _Value) -> Entry:
    """Return the side entry that replaces a stored part of an imported file."""
    fields = cast("dict[str, object]", value.plain) if isinstance(value.plain, dict) else {}
    new = new_side(ImportedRecord(str(fields.get("format", "")), REDACTED))
    return msgspec.structs.replace(entry, kind=new.kind, v=new.v, body=new.body)


def _header(redactor: Redactor, header: StreamHeader, chosen: Sequence[Redaction]) -> StreamHeader:
    metadata = _replace(redactor, header.metadata or {})
    parent = header.parent
    return msgspec.structs.replace(
        header,
        parent=None if parent is None or redactor.holds_some(parent) else parent,
        title=None if header.title is None else redactor.replace(header.title),
        cwd=None if header.cwd is None else redactor.replace(header.cwd),
        metadata={**metadata, REDACTED: list(chosen)},
    )


def _text(blob: bytes) -> str | None:
    """Return `blob` as text; None if it is not text."""
    try:
        return None if b"\0" in blob else blob.decode()
    except UnicodeDecodeError:
        return None


def _holds_some(redactor: Redactor, blob: bytes) -> bool:
    text = _text(blob)
    return text is not None and redactor.holds_some(text)
