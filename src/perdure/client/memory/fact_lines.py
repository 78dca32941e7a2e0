"""Facts from a file of JSON lines: ``{"text": …, "subject": …, "from": …, "to": …}``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from perdure.bounds.limits import require_within
from perdure.client.clock import Outside
from perdure.client.memory.fact_writes import NewFact, facts_in, remember
from perdure.client.session_fields import require_subject
from perdure.errors import FormatError, LimitExceeded, SecretPasted, WrongArgument
from perdure.memory.reports import ImportedFacts, UnreadLine
from perdure.memory.scope import MemoryFilter
from perdure.session.clock import ms_of
from perdure.stores.session_store import SessionStore


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    subject: str | None = None
    agent: str | None = None
    valid_from: str | None = msgspec.field(default=None, name="from")
    valid_to: str | None = msgspec.field(default=None, name="to")


_line = msgspec.json.Decoder(_Line)
_Said = tuple[str, str | None, int | None, int | None]


async def import_lines(
    store: SessionStore, outside: Outside, file: Path, *, subject: str | None, agent: str | None
) -> ImportedFacts:
    """Remember the facts of `file` that are not known. Raises: as `Memory.import_facts`."""
    content = await asyncio.to_thread(_content_of, file)
    added = known = 0
    problems: list[UnreadLine] = []
    there: dict[str | None, set[_Said]] = {}
    for number, line in _lines_of(content):
        try:
            read = _line.decode(line)
            require_subject(about := read.subject if read.subject is not None else subject)
            whose = read.agent if read.agent is not None else agent
            new = NewFact(
                text=read.text,
                sources=(),
                said_by="person",
                valid_from=_time("from", read.valid_from),
                valid_to=_time("to", read.valid_to),
            )
            said = (new.text, whose, new.valid_from, new.valid_to)
            if about not in there:
                facts = await facts_in(store, MemoryFilter(about))
                there[about] = {(f.text, f.agent, f.valid_from, f.valid_to) for f in facts}
            if said in there[about]:
                known += 1
                continue
            await remember(store, outside, new, subject=about, agent=whose, key=None)
        except (ValueError, RecursionError, WrongArgument, SecretPasted, LimitExceeded) as error:
            problems.append(UnreadLine(number, str(error)))
            continue
        there[about].add(said)
        added += 1
    return ImportedFacts(added, known, tuple(problems))


def _content_of(file: Path) -> bytes:
    """Raises: FormatError; LimitExceeded."""
    try:
        require_within("import_file_bytes", file.stat().st_size, str(file))
        return file.read_bytes()
    except OSError as error:
        raise FormatError(str(file), f"it cannot be read ({error.strerror})") from error


def _lines_of(content: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip():
            yield number, line


def _time(name: str, text: str | None) -> int | None:
    """Return an ISO date or time in Unix milliseconds. Raises: ValueError."""
    if text is None:
        return None
    try:
        return ms_of(datetime.fromisoformat(text))
    except ValueError as error:
        raise ValueError(f'"{name}" is no date like 2026-11-23: {text!r:.60}') from error
