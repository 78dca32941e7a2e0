"""Every cell of the table in `docs/formats.md`."""

from __future__ import annotations

import msgspec
import pytest

from perdure.codecs.fields import fields_of
from perdure.interop.exports import export_session
from perdure.interop.formats.items import IMPORT
from perdure.interop.reports import ExportFormat
from perdure.session.ids import StreamId
from perdure.stores.session_store import SessionStore
from tests.acceptance.formats import own
from tests.acceptance.formats.features import FEATURES, Held, facts_of, held
from tests.acceptance.formats.table import (
    DOCUMENT,
    NO,
    PARTLY,
    READ,
    WRITTEN,
    YES,
    read_cell,
    with_table,
    written_cell,
)
from tests.fakes.samples import case
from tests.fakes.sources import (
    CLAUDE_CODE,
    CODEX,
    OPENCODE,
    OPERATOR,
    PI,
    claude_file,
    codex_file,
    empty_store,
    every_file,
    imported,
    opencode_file,
    operator_file,
    pi_file,
)

FILES = {
    "pi": [pi_file(name) for name in PI],
    "operator": [operator_file(name) for name in OPERATOR],
    "claude-code": [claude_file(name) for name in CLAUDE_CODE],
    "codex": [codex_file(name) for name in CODEX],
    "opencode": [opencode_file(name) for name in OPENCODE],
}
SIGNATURES = {
    "pi": b"ignature",
    "operator": b"c2ln",
    "claude-code": b'"signature"',
    "codex": b"Z0FBQUFB",
}


TOLD = {
    "the current leaf": (
        *("retained messages are on the branch", "role context", "named only"),
        "written outside the context",
    ),
    "tool results, with failures marked": ("named only",),
    "a mark for withheld reasoning": ("its provider withheld",),
    "images": ("medium",),
    "audio": ("medium",),
    "the model of each answer": ("name of the model",),
    "tokens used by summaries": ("usage of a summary", "compaction"),
    "stop reasons": ("stopped by a filter",),
    "branches": ("retained messages are on the branch", "named only"),
    "navigation entries (a moved leaf)": ("branch switch",),
    "messages that a compaction retains verbatim": ("retained messages",),
    "branch summaries": ("empty summary",),
    "compactions and the entries they keep": ("retained messages", "undone"),
    "extension messages": ("outside the context",),
    "gateway data of a message": ("message field 'reactions'",),
    "the agent that a call started": ("message field 'subagent'",),
    "other fields of a message": ("message field",),
    "the parent session of a subagent": ("origin of the session",),
    "other fields of the session": ("session field",),
    "foreign ids, for lookup": ("foreign id",),
    "records outside the conversation": ("record outside the conversation",),
    "messages and their roles": ("written outside the context", "role context"),
}
"""For each feature, texts: if its data is lost, the report contains one of these texts."""


class Case(msgspec.Struct, frozen=True):
    """A session, and the session that is read back from a file of it."""

    session: Held
    back: Held
    warnings: tuple[str, ...]


_cases: dict[str, list[Case]] = {}


async def cases(format: ExportFormat) -> list[Case]:
    """Every fixture and a session of our own, written in `format` and read again."""
    if format not in _cases:
        store = empty_store()
        streams = [(await imported(store, content)).session for content in every_file()]
        streams.append(await own.stored(store))
        _cases[format] = [await case_of(store, stream, format) for stream in streams]
    return _cases[format]


async def case_of(store: SessionStore, stream: StreamId, format: ExportFormat) -> Case:
    exported = await export_session(store, stream, format)
    return Case(await held(store, stream), await read(exported.content), exported.warnings)


async def read(content: bytes) -> Held:
    store = empty_store()
    return await held(store, (await imported(store, content)).session)


@pytest.mark.parametrize("format", [name for name in READ if name != "perdure"])
async def test_reader_yields_exactly_the_features_in_the_format_table(format: str) -> None:
    sessions = [await read(content) for content in FILES[format]]
    for feature in FEATURES:
        with case(feature):
            is_found = any(facts_of(feature, session) for session in sessions)
            assert read_cell(feature, format) == (YES if is_found else NO)


@pytest.mark.parametrize("format", WRITTEN)
async def test_writer_keeps_exactly_the_features_in_the_format_table(format: ExportFormat) -> None:
    for feature in FEATURES:
        with case(feature):
            await check_writer(feature, format)


async def check_writer(feature: str, format: ExportFormat) -> None:
    """Check that the files in `format` keep as much of `feature` as the table says."""
    having = [each for each in await cases(format) if facts_of(feature, each.session)]
    assert having, f"no fixture has {feature}"
    had, lost = 0, 0
    for each in having:
        missing = facts_of(feature, each.session) - facts_of(feature, each.back)
        had += facts_of(feature, each.session).total()
        lost += missing.total()
        told = TOLD.get(feature, ())
        is_told = any(words in warning for words in told for warning in each.warnings)
        assert is_told or not missing, (missing, each.warnings)
    cell = NO if lost == had else PARTLY if lost else YES
    assert written_cell(feature, format) == cell
    if format == "perdure":
        assert read_cell(feature, format) == cell


async def test_export_without_loss_prints_no_warning() -> None:
    for format in WRITTEN:
        for each in await cases(format):
            described = fields_of((each.session.header.metadata or {}).get(IMPORT)) or {}
            if format in ("perdure", described["format"]):
                assert each.warnings == ()


@pytest.mark.parametrize("format", SIGNATURES)
async def test_provider_signatures_are_not_stored_in_entries(format: str) -> None:
    [content, *_] = [each for each in FILES[format] if SIGNATURES[format] in each]
    session = await read(content)
    assert not any(SIGNATURES[format] in entry.body for entry in session.entries)


def test_format_table_in_the_document_matches_these_tests() -> None:
    document = DOCUMENT.read_text("utf-8")
    assert document == with_table(document)
