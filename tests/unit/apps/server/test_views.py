"""Views: a session in the form of an API response."""

from __future__ import annotations

import perdure
from perdure.apps.server.views import whole_view


async def test_view_of_a_session_has_its_state_and_head() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create(title="Trip")
        view = await whole_view(store, session)
        assert (view.state, view.title, view.head) == ("idle", "Trip", session.head)
