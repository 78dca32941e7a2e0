from __future__ import annotations

import pytest

from perdure.errors import SessionNotFound
from perdure.interop.exporting import export_session
from perdure.session.ids import StreamId
from tests.fakes.sources import empty_store, imported, pi_file


async def test_perdure_is_the_format_unless_another_is_named() -> None:
    store = empty_store()
    stream = (await imported(store, pi_file("v3.jsonl"))).session
    native = await export_session(store, stream)
    assert (native.session, native.format, native.warnings) == (stream, "perdure", ())
    assert native.content.startswith(b'{"type":"perdure"')
    foreign = await export_session(store, stream, "pi")
    assert (foreign.session, foreign.format) == (stream, "pi")
    assert foreign.content == pi_file("v3.jsonl")


async def test_the_same_session_gives_the_same_bytes() -> None:
    store = empty_store()
    stream = (await imported(store, pi_file("v1.jsonl"))).session
    assert await export_session(store, stream) == await export_session(store, stream)


async def test_a_session_that_is_not_there_cannot_be_exported() -> None:
    with pytest.raises(SessionNotFound):
        await export_session(empty_store(), StreamId("s"))
    with pytest.raises(SessionNotFound):
        await export_session(empty_store(), StreamId("s"), "pi")
