"""``perdure export --all -o DIR``: a file per session, and for HTML pages a searchable index."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from perdure.apps.cli.exits import PathExists
from perdure.apps.session_rows import RowFilter, newest_rows
from perdure.apps.terminal.output import count_of, local_time
from perdure.apps.terminal.text import safe
from perdure.client.store import Store
from perdure.client.transfers import write_file
from perdure.interop.exports import ExportSelection, export_session
from perdure.interop.formats.html.archive import (
    INDEX,
    ArchiveRow,
    page_name,
    render_index,
    searched_text,
)
from perdure.interop.formats.html.page import transcript_in
from perdure.interop.formats.transcript import Transcript
from perdure.interop.reports import ExportFormat
from perdure.session.info import SessionInfo

SEARCHED_CHARACTERS = 100_000
"""Maximum number of characters of each session's text that the index can search."""


ENDINGS: Mapping[ExportFormat, str] = {"html": ".html", "markdown": ".md", "perdure": ".jsonl"}
"""Format of an archive -> extension of its files."""

_COUNTED = re.compile(r" \([^()]*\)$|\d[\d,]*")


class Archive(msgspec.Struct, frozen=True):
    """A written archive. `index` is None if the archive has no pages.

    `others` counts the files in the folder that do not belong to this archive.
    """

    folder: str
    index: str | None
    sessions: int
    bytes: int
    warnings: tuple[str, ...]
    redacted: dict[str, int]
    others: int


async def write_archive(
    store: Store,
    wanted: RowFilter,
    folder: Path,
    format: ExportFormat,
    selection: ExportSelection,
    *,
    is_forced: bool,
) -> Archive:
    """Write a file for each session that matches `wanted` into `folder`; for HTML, also an index.

    `format` is one of `ENDINGS`. If the command is interrupted, the folder has no index; repeat the
    command with `is_forced`.
    Raises: PathExists if `folder` is not empty and `is_forced` is False.
    """
    others = await asyncio.to_thread(_make_folder, folder, is_forced=is_forced)
    rows: list[ArchiveRow] = []
    sessions = total = 0
    warnings: list[str] = []
    counts = Counter[str]()
    for row in await newest_rows(store, wanted, None):
        made = await export_session(store.backend, row.info.id, format, selection)
        name = page_name(row.info.id).removesuffix(".html") + ENDINGS[format]
        write_file(folder / name, made.content, is_replacing=is_forced)
        others.discard(name)
        sessions, total = sessions + 1, total + len(made.content)
        warnings += [f"{row.info.id}: {warning}" for warning in made.warnings]
        counts.update(made.redacted)
        if format == "html":
            shown = await asyncio.to_thread(transcript_in, made.content)
            rows.append(_row(row.info, name, shown, selection))
    file = None
    if format == "html":
        file, index = str(folder / INDEX), render_index(rows)
        write_file(folder / INDEX, index, is_replacing=is_forced)
        others.discard(INDEX)
        total += len(index)
    return Archive(str(folder), file, sessions, total, tuple(warnings), counts, len(others))


def warning_lines(warnings: Iterable[str]) -> Iterator[str]:
    """Yield a line for each kind of warning, with the number of affected sessions and an example.

    Warnings that differ only in numbers or in text in parentheses are of the same kind. Pure.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for warning in warnings:
        session, _, text = warning.partition(": ")
        kind = _COUNTED.sub("", text)
        found.setdefault(kind, []).append((session, text))
    for each in found.values():
        session, text = each[0]
        many = "" if len(each) == 1 else f"{count_of(len(each), 'session')}, such as "
        yield f"{text}: {many}{session}"


def _make_folder(folder: Path, *, is_forced: bool) -> set[str]:
    """Create the folder, and return the names of the files that it already contained."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = {each.name for each in folder.iterdir()}
    if names and not is_forced:
        remedy = "choose another name, or add --force to write into it and keep its other files"
        raise PathExists(str(folder), remedy)
    return names


def _row(info: SessionInfo, name: str, shown: Transcript, selection: ExportSelection) -> ArchiveRow:
    """Return a row of the index; its title and text come from the page, which can be redacted."""
    title = shown.facts.title or "Untitled session"
    facts = [local_time(info.updated_at), info.source or "perdure"]
    if info.cwd and "paths" not in selection.redact:
        facts.append(safe(info.cwd))
    facts.append(count_of(info.messages, "message"))
    text = searched_text(shown)[:SEARCHED_CHARACTERS]
    return ArchiveRow(name, title, " · ".join(facts), text)
