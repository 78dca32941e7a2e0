"""Which session is meant."""

from __future__ import annotations

import pytest

from perdure.client.looking.naming import named
from perdure.client.store import Store
from perdure.errors import AmbiguousId, Erased, SessionNotFound


async def test_of_an_erased_session_and_a_living_one_the_living_one_is_meant(store: Store) -> None:
    for id in ("trip-1", "trip-1.2"):
        await store.create(id=id)
    await store.erase("trip-1")
    assert (await store.open("trip")).id == "trip-1.2"
    with pytest.raises(Erased):
        await store.open("trip-1")  # which is its whole id


async def test_of_several_living_ones_none_is_meant(store: Store) -> None:
    for id in ("trip-1", "trip-2", "trip-3"):
        await store.create(id=id)
    await store.erase("trip-1")
    with pytest.raises(AmbiguousId) as refused:
        await named(store.backend, "trip")
    assert refused.value.candidates == ("trip-2", "trip-3")
    with pytest.raises(SessionNotFound):
        await named(store.backend, "other")


async def test_what_was_erased_is_still_found_where_nothing_else_begins_so(store: Store) -> None:
    await store.create(id="trip-1")
    await store.erase("trip-1")
    with pytest.raises(Erased):
        await store.open("trip")
