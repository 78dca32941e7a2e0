from __future__ import annotations

import pytest

from perdure.bounds.limits import limits
from perdure.client.store import Store
from perdure.client.titles import title_of
from perdure.errors import LimitExceeded


def test_title_loses_the_space_around_it_only() -> None:
    assert title_of(" \ufeff Tide\n tables\n") == "Tide\n tables"
    assert [title_of(nothing) for nothing in (None, "", " \n\u3000")] == [None] * 3


async def test_title_above_the_limit_is_refused(store: Store) -> None:
    session = await store.create(id="s")
    longest = "é" * limits().title_characters
    await session.rename(longest)
    head, too_long = session.head, longest + "é"
    named = r"a title of 1,001 characters exceeds limits\.title_characters = 1,000"
    with pytest.raises(LimitExceeded, match=named):
        await session.rename(too_long)
    with pytest.raises(LimitExceeded, match=named):
        await session.fork(title=too_long)
    with pytest.raises(LimitExceeded, match=named):
        await store.create(id="long", title=too_long)
    assert ((await session.info()).title, session.head) == (longest, head)
    assert [each.id for each in await store.recent()] == ["s"]
