"""Every cell of the table in `docs/formats.md`."""

from __future__ import annotations

from functools import cache

import pytest

from perdure.interop.exporting import ExportFormat, export_session
from perdure.stores.protocol import SessionStore
from tests.acceptance.formats.features import FEATURES, Held, held
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


@cache
def _stored() -> dict[str, SessionStore]:
    return {"all": empty_store()}


async def sessions() -> tuple[SessionStore, list[Held]]:
    """Every fixture, imported once for all tests."""
    store = _stored()["all"]
    streams = [(await imported(store, content)).session for content in every_file()]
    return store, [await held(store, stream) for stream in streams]


async def read(content: bytes) -> Held:
    store = empty_store()
    return await held(store, (await imported(store, content)).session)


async def written_and_read(store: SessionStore, session: Held, format: ExportFormat) -> Held:
    exported = await export_session(store, session.header.id, format)
    return await read(exported.content)


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("format", [name for name in READ if name != "perdure"])
async def test_read(feature: str, format: str) -> None:
    found = [FEATURES[feature](await read(content)) for content in FILES[format]]
    assert read_cell(feature, format) == (YES if any(found) else NO)


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("format", WRITTEN)
async def test_written(feature: str, format: ExportFormat) -> None:
    store, every = await sessions()
    having = [session for session in every if FEATURES[feature](session)]
    assert having, f"no fixture has {feature}"
    kept = [FEATURES[feature](await written_and_read(store, each, format)) for each in having]
    cell = YES if all(kept) else PARTLY if any(kept) else NO
    assert written_cell(feature, format) == cell
    if format == "perdure":
        assert read_cell(feature, format) == cell


@pytest.mark.parametrize("format", SIGNATURES)
async def test_signatures_of_providers_are_in_the_original_only(format: str) -> None:
    [content, *_] = [each for each in FILES[format] if SIGNATURES[format] in each]
    session = await read(content)
    assert not any(SIGNATURES[format] in entry.body for entry in session.entries)


def test_the_document_has_the_table_of_these_tests() -> None:
    document = DOCUMENT.read_text("utf-8")
    assert document == with_table(document)
