"""Views: the state of a session as clients see it."""

from __future__ import annotations

import perdure
from perdure.apps.server.views import states_of, whole_view


async def test_state_tells_open_turns_apart() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create(title="Trip")
        assert (await whole_view(store, session)).state == "idle"
        await session.end()
        assert (await states_of(store, [await session.info()])) == {session.id: "ended"}
