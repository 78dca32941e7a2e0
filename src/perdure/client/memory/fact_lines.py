"""Import facts from a file with lines such as ``{"text": …, "subject": …, "from": …, "to": …}``."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from perdure.bounds.limits import require_within
from perdure.client.clock import Outside
from perdure.client.memory.fact_writes import facts_in, remember
from perdure.client.session_fields import require_subject
from perdure.errors import FormatError, HeadConflict, LimitExceeded, SecretPasted, SessionNotFound
from perdure.memory.reports import ImportedFacts, UnreadLine
from perdure.memory.scope import MemoryFilter
from perdure.session.clock import ms_of
from perdure.session.ids import entry_place
from perdure.session.memory.kinds import FactRemembered, memory_stream
from perdure.stores.session_store import SessionStore


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    subject: str | None = None
    agent: str | None = None
    valid_from: str | None = msgspec.field(default=None, name="from")
    valid_to: str | None = msgspec.field(default=None, name="to")


_line = msgspec.json.Decoder(_Line)


async def import_lines(
    store: SessionStore, outside: Outside, file: Path, *, subject: str | None, agent: str | None
) -> ImportedFacts:
    """Store the facts in `file` that are not stored yet.

    Raises: the errors of `Memory.import_facts`.
    """
    content = await asyncio.to_thread(_content_of, file)
    added = known = 0
    problems: list[UnreadLine] = []
    there: dict[str | None, _There] = {}
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            read = _line.decode(line)
            require_subject(about := read.subject if read.subject is not None else subject)
            new = FactRemembered(
                text=read.text,
                agent=read.agent if read.agent is not None else agent,
                valid_from=_time("from", read.valid_from),
                valid_to=_time("to", read.valid_to),
            )
            if await _is_added(store, outside, new, there, about):
                added += 1
            else:
                known += 1
        except (ValueError, RecursionError, SecretPasted, LimitExceeded) as error:
            problems.append(UnreadLine(number, str(error)))
    return ImportedFacts(added, known, tuple(problems))


async def _is_added(
    store: SessionStore,
    outside: Outside,
    new: FactRemembered,
    there: dict[str | None, _There],
    subject: str | None,
) -> bool:
    """Store `new`; return False if the fact exists already, for example from a concurrent call."""
    if subject not in there:
        there[subject] = await _there(store, subject)
    while new not in (known := there[subject]).said:
        try:
            fact = await remember(store, outside, new, subject, expected_head=known.head)
        except HeadConflict:
            there[subject] = await _there(store, subject)
            continue
        known.head = entry_place(fact.id)[1]
        known.said.add(new)
        return True
    return False


@dataclass
class _There:
    """The facts of a subject, and the head that the log of these facts had when they were read."""

    head: int
    said: set[FactRemembered]


async def _there(store: SessionStore, subject: str | None) -> _There:
    head = -1
    with suppress(SessionNotFound):
        head = (await store.state(memory_stream(subject))).head
    facts = await facts_in(store, MemoryFilter(subject))
    said = {
        FactRemembered(fact.text, fact.agent, valid_from=fact.valid_from, valid_to=fact.valid_to)
        for fact in facts
    }
    return _There(head, said)


def _content_of(file: Path) -> bytes:
    """Raises: FormatError; LimitExceeded."""
    try:
        require_within("import_file_bytes", file.stat().st_size, str(file))
        return file.read_bytes()
    except OSError as error:
        raise FormatError(str(file), f"it cannot be read ({error.strerror})") from error


def _time(name: str, text: str | None) -> int | None:
    """Return a date or time in ISO format as Unix milliseconds. Raises: ValueError."""
    if text is None:
        return None
    try:
        return ms_of(datetime.fromisoformat(text))
    except ValueError as error:
        raise ValueError(f'"{name}" is no date like 2026-11-23: {text!r:.60}') from error
