"""Which session somebody means who names it by its id, or by how that begins."""

from __future__ import annotations

from perdure.errors import AmbiguousId
from perdure.session.ids import StreamId
from perdure.stores.protocol import SessionStore


async def named(store: SessionStore, text: str) -> StreamId:
    """The session or flow of the id `text`, or the only one whose id begins so.

    What was erased is only meant by its whole id, or where nothing else begins so.
    Raises: SessionNotFound, AmbiguousId.
    """
    try:
        return await store.find(text)
    except AmbiguousId as error:
        known = [StreamId(each) for each in error.candidates]
        living = [each for each in known if not await _is_erased(store, each)]
        if len(living) == 1:
            return living[0]
        raise AmbiguousId(text, tuple(living or known)) from None


async def _is_erased(store: SessionStore, stream: StreamId) -> bool:
    return (await store.state(stream)).info.status == "erased"
