"""Another file with the id of an imported session becomes a separate session, on every backend."""

from __future__ import annotations

from perdure.session.codec import new_tree
from perdure.session.messages import user
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import START_MS
from tests.fakes.sources import imported, pi_file

GENUINE = pi_file("v3.jsonl")


async def test_altered_file_does_not_change_an_existing_session(store: SessionStore) -> None:
    lines = GENUINE.splitlines(keepends=True)
    first = await imported(store, b"".join(lines[:-2]))
    write = Write(stream=first.session, entries=(new_tree(user("added here")),))
    await store.commit(Commit(writes=(write,), at=START_MS))
    before = await store.entries(first.session)

    hostile = GENUINE.replace(b"A blue pixel.", b"A forged pixel.")
    report = await imported(store, hostile)

    assert (report.session, report.is_new) == (f"{first.session}.2", True)
    assert any(first.session in warning for warning in report.warnings)
    assert await store.entries(first.session) == before
    grown = await imported(store, GENUINE)
    assert (grown.session, grown.is_new) == (first.session, False)
    assert (await store.state(first.session)).leaf == before[-1].id
    assert (await imported(store, hostile)).entries == 0
