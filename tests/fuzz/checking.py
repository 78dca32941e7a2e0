"""What must hold of any file: no crash, no lost line, a sound store, and the same again."""

from __future__ import annotations

from bisect import bisect_right

from perdure.context.build import build_context
from perdure.errors import FormatError
from perdure.interop.exporting import export_session
from perdure.interop.formats.items import source_of
from perdure.interop.formats.lines import lines_of
from perdure.interop.importing import PARSERS
from perdure.interop.reports import ImportReport
from perdure.session.codec import body_of
from perdure.session.notes import ImportSource
from perdure.stores.protocol import SessionStore
from tests.fakes.provider_rules import all_problems
from tests.fakes.sources import check_items, empty_store, imported


async def check(content: bytes, seed: int) -> None:
    """Assert all that must hold of the file `content`."""
    for parse in PARSERS.values():
        check_items(parse(content, None))
    store = empty_store()
    try:
        if seed % 2:  # as if it had been imported while it was written
            await _imported_or_refused(store, content[: len(content) // 2])
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
    await _check_exports(store, report, content)


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


async def _check_exports(store: SessionStore, report: ImportReport, content: bytes) -> None:
    """It moves to another store whole, and comes out as it was."""
    exported = await export_session(store, report.session)
    other = empty_store()
    await imported(other, exported.content)
    assert (await export_session(other, report.session)).content == exported.content
    if report.format == "pi":
        assert (await export_session(store, report.session, "pi")).content == content
    if report.format == "operator":
        assert (await export_session(store, report.session, "operator")).content == content
