"""Operations that a backend does not support raise an error."""

from __future__ import annotations

import pytest

from perdure.errors import SessionNotFound, Unsupported
from perdure.session.ids import StreamId
from perdure.stores.protocol import Capabilities, Commit, Write
from perdure.stores.session_store import SessionStore
from tests.conformance.store.building import S, create, header, said
from tests.fakes.clock import START_MS

TWO = (
    Write(stream=StreamId("a"), create=header("a"), entries=(said("in a"),)),
    Write(stream=S, entries=(said("in s"),)),
)


async def test_every_backend_declares_its_capabilities(store: SessionStore) -> None:
    assert isinstance(store.capabilities, Capabilities)
    if (await store.info()).is_encrypted:
        assert store.capabilities.encryption


async def test_multi_stream_commit_is_stored_or_raises_unsupported(store: SessionStore) -> None:
    await create(store)

    if store.capabilities.multi_stream_commit:
        await store.commit(Commit(writes=TWO, at=START_MS))
        assert await store.position() > 0
        return
    with pytest.raises(Unsupported) as refused:
        await store.commit(Commit(writes=TWO, at=START_MS, blobs=(b"never",)))

    error = refused.value
    assert (error.capability, error.code) == ("multi_stream_commit", "unsupported")
    assert error.backend == (await store.info()).backend
    assert "sqlite" in str(error)
    assert (await store.entries(S), await store.position()) == ([], 0)
    with pytest.raises(SessionNotFound):
        await store.state(StreamId("a"))
