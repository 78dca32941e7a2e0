"""Checks for every file: no crash, no lost line, a valid store, and repeatable results."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection

from perdure.codecs.lines import lines_of
from perdure.context.build import build_context
from perdure.errors import EntryNotFound, FormatError
from perdure.interop.exports import export_session
from perdure.interop.formats.registry import FORMATS
from perdure.interop.formats.sources.reader import BOUNDS, Bounds
from perdure.interop.reports import ExportFormat, ImportReport
from perdure.interop.source_files import content_of, originals_of
from perdure.session.codec import body_of
from perdure.session.notes import ImportSource, source_of
from perdure.stores.session_store import SessionStore
from tests.fakes.provider_rules import all_problems
from tests.fakes.sources import check_items, empty_store, imported

BY_NAME = {str(name): each for name, each in FORMATS.items()}

TARGETS: tuple[ExportFormat, ...] = ("pi", "operator", "markdown", "html")
"""Formats to which every session can be exported, whatever it was read from."""

MOST_PIECES = 200

PIECES = (BOUNDS, Bounds(0, 1), Bounds(0, 700), Bounds(0, 20_000), Bounds(3_000, 500))
"""How much of a file is read at once: all of it, one line, or some lines."""


async def check(content: bytes, seed: int) -> None:
    """Check all rules for the file `content`."""
    for parse in (format.parse for format in FORMATS.values()):
        check_items(parse(content, None))
    bounds, others = (_bounds(content, number) for number in (seed, seed % 7))
    store = empty_store()
    try:
        half = content[: len(content) // 2] if seed % 2 else b""  # while it was written
        await _imported_or_refused(store, half, bounds)
        report = await imported(store, content, bounds=bounds)
    except FormatError:
        assert (await store.maintenance.verify()).is_ok
        return
    assert (await store.maintenance.verify()).is_ok
    await _check_session(store, report)
    if report.format != "perdure":
        await _check_lines(store, report, content)
    again = await imported(store, content, bounds=others)
    assert (again.session, again.entries, again.is_new) == (report.session, 0, False)
    await _check_own_export(store, report)
    await _check_unchanged_export(store, report, content)
    if seed % 3 == 0:
        for format in TARGETS:
            await _check_target(store, report, format)


def _bounds(content: bytes, number: int) -> Bounds:
    """Return the limits for reading `content`: the file is read in about 200 pieces at most.

    Each piece is stored in a separate commit, so more pieces would take too long.
    """
    bounds = PIECES[number % len(PIECES)]
    return Bounds(bounds.whole_bytes, max(bounds.piece_bytes, len(content) // MOST_PIECES))


async def _imported_or_refused(store: SessionStore, content: bytes, bounds: Bounds) -> None:
    try:
        await imported(store, content, bounds=bounds)
    except FormatError:
        return


async def _check_session(store: SessionStore, report: ImportReport) -> None:
    """Check that the session is valid, and that every provider accepts its context."""
    state = await store.state(report.session)
    assert state.info.status == "active" or report.format == "perdure"
    context = build_context(await store.context_window(report.session, state.leaf))
    problems = all_problems([each.message for each in context.messages])
    assert problems == [], problems


async def _check_lines(store: SessionStore, report: ImportReport, content: bytes) -> None:
    """Check that all bytes are stored, and that every line is an entry or is reported."""
    entries = await store.entries(report.session)
    parts = [body for entry in entries if isinstance(body := body_of(entry), ImportSource)]
    newest = max(n for n, part in enumerate(parts) if part.offset == 0)
    kept = [await store.blob(part.blob) for part in parts[newest:]]
    assert b"".join(kept) == content
    if newest:
        return  # what was rewritten is matched by id: its places refer to the former file
    lines = list(lines_of(content))
    begins = [line.offset for line in lines]
    sources = (source_of(entry.body) for entry in entries)
    told = {bisect_right(begins, each.offset) for each in sources if each is not None}
    malformed = {number for part in parts for number in part.malformed}
    opaque = {entry.body for entry in entries if entry.kind == "opaque"}
    headers = set(BY_NAME[report.format].parse(content, None).header_lines)
    for line in lines:
        is_told = line.number in told or line.number in malformed or line.content in opaque
        assert is_told or line.is_blank or line.number in headers, line.number


async def _check_own_export(store: SessionStore, report: ImportReport) -> None:
    """Check that the session moves to another store completely."""
    exported = await export_session(store, report.session)
    other = empty_store()
    await imported(other, exported.content)
    assert (await export_session(other, report.session)).content == exported.content


async def _check_unchanged_export(
    store: SessionStore, report: ImportReport, content: bytes
) -> None:
    """Check that the export equals the imported file."""
    if report.format == "pi":
        assert (await export_session(store, report.session, "pi")).content == content
    if report.format == "operator":
        assert (await export_session(store, report.session, "operator")).content == content


async def _check_target(store: SessionStore, report: ImportReport, format: ExportFormat) -> None:
    """Check that the session is exported to `format`, and that an importer reads the result."""
    exported = await export_session(store, report.session, format)
    if format not in BY_NAME:
        return
    taken = await _bad_lines(store, report, format)
    lines = [line.content for line in lines_of(exported.content)]
    malformed = BY_NAME[format].parse(exported.content, None).malformed
    wrong = [each for each in malformed if lines[each.number - 1] not in taken]
    assert wrong == [], wrong


async def _bad_lines(
    store: SessionStore, report: ImportReport, format: ExportFormat
) -> Collection[bytes]:
    """Return the lines of the session's source file that no reader of `format` accepts.

    The export contains the bad lines unchanged, because they are the original bytes of the file.
    """
    notes = await store.notes(report.session, (ImportSource.kind,))
    originals = [each for each in originals_of(notes) if each.parts[0].source.format == format]
    names = [part.source.blob for original in originals for part in original.parts]
    try:
        content = content_of(originals, {name: await store.blob(name) for name in names})
    except EntryNotFound:  # a note that was changed on the way names a content that never was
        return ()
    if content is None:
        return ()
    lines = [line.content for line in lines_of(content)]
    return {lines[each.number - 1] for each in BY_NAME[format].parse(content, None).malformed}
