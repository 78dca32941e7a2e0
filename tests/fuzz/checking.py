"""What must hold of any file: no crash, no lost line, a sound store, and the same again."""

from __future__ import annotations

from bisect import bisect_right

from perdure.context.build import build_context
from perdure.errors import FormatError
from perdure.interop.exporting import ExportFormat, export_session
from perdure.interop.formats.items import source_of
from perdure.interop.formats.lines import TOO_DEEP, lines_of, read_line
from perdure.interop.importing import PARSERS
from perdure.interop.reports import ImportReport
from perdure.session.codec import body_of
from perdure.session.notes import ImportSource
from perdure.stores.protocol import SessionStore
from tests.fakes.provider_rules import all_problems
from tests.fakes.sources import check_items, empty_store, imported

TARGETS: tuple[ExportFormat, ...] = ("pi", "operator", "markdown", "html")
"""What every session can be written as, whatever it was read from."""


async def check(content: bytes, seed: int) -> None:
    """Assert all that must hold of the file `content`."""
    for parse in PARSERS.values():
        check_items(parse(content, None))
    store = empty_store()
    try:
        half = content[: len(content) // 2] if seed % 2 else b""  # while it was written
        await _imported_or_refused(store, half)
        report = await imported(store, content)
    except FormatError:
        assert (await store.verify()).is_ok
        return
    assert (await store.verify()).is_ok
    await _check_session(store, report)
    if report.format != "perdure":
        await _check_lines(store, report, content)
    again = await imported(store, content)
    assert (again.session, again.entries, again.is_new) == (report.session, 0, False)
    await _check_own_export(store, report)
    if not _is_misleading(half, content):
        await _check_unchanged_export(store, report, content)
    if seed % 3 == 0:
        for format in TARGETS:
            await _check_target(store, report, format)


async def _imported_or_refused(store: SessionStore, content: bytes) -> None:
    try:
        await imported(store, content)
    except FormatError:
        return


async def _check_session(store: SessionStore, report: ImportReport) -> None:
    """Its context is one that every provider takes."""
    state = await store.state(report.session)
    context = build_context(await store.context_window(report.session, state.leaf))
    problems = all_problems([each.message for each in context.messages])
    assert problems == [], problems


async def _check_lines(store: SessionStore, report: ImportReport, content: bytes) -> None:
    """Its bytes are all there, and every line is an entry, or said not to be."""
    entries = await store.entries(report.session)
    parts = [body for entry in entries if isinstance(body := body_of(entry), ImportSource)]
    newest = max(n for n, part in enumerate(parts) if part.offset == 0)
    kept = [await store.blob(part.blob) for part in parts[newest:]]
    assert b"".join(kept) == content
    if newest:
        return  # what was rewritten is matched by id: its places are those of the former file
    lines = list(lines_of(content))
    begins = [line.offset for line in lines]
    sources = (source_of(entry.body) for entry in entries)
    told = {bisect_right(begins, each.offset) for each in sources if each is not None}
    malformed = {number for part in parts for number in part.malformed}
    opaque = {entry.body for entry in entries if entry.kind == "opaque"}
    headers = set(PARSERS[report.format](content, None).header_lines)
    for line in lines:
        is_told = line.number in told or line.number in malformed or line.content in opaque
        assert is_told or line.is_blank or line.number in headers, line.number


def _is_misleading(half: bytes, content: bytes) -> bool:
    """Whether the last line of `half` said something that the whole line in `content` does not.

    What it said is in the session for good, so an export has it beside the file.
    """
    begun = half.rpartition(b"\n")[2]
    whole = begun + content[len(half) :].partition(b"\n")[0]
    return begun != whole and read_line(begun).is_json


async def _check_own_export(store: SessionStore, report: ImportReport) -> None:
    """It moves to another store whole."""
    exported = await export_session(store, report.session)
    other = empty_store()
    await imported(other, exported.content)
    assert (await export_session(other, report.session)).content == exported.content


async def _check_unchanged_export(
    store: SessionStore, report: ImportReport, content: bytes
) -> None:
    """It comes out as it was."""
    if report.format == "pi":
        assert (await export_session(store, report.session, "pi")).content == content
    if report.format == "operator":
        assert (await export_session(store, report.session, "operator")).content == content


async def _check_target(store: SessionStore, report: ImportReport, format: ExportFormat) -> None:
    """It can be written in `format`, and what is written for a machine can be read again."""
    exported = await export_session(store, report.session, format)
    if format in PARSERS and report.format not in (format, "perdure"):  # those hold lines as found
        malformed = PARSERS[format](exported.content, None).malformed
        wrong = [each for each in malformed if each.reason != TOO_DEEP]  # a record wraps a record
        assert wrong == [], wrong
