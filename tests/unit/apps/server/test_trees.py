"""Rows of a tree: one line of text each, whatever an entry holds."""

from __future__ import annotations

import perdure
from perdure.apps.server.trees import TreeReader


async def test_text_of_row_is_one_short_line() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create()
        await session.append(perdure.user("first\nsecond\u202e\x1b[31m " + "x" * 5_000))
        (row,) = (await TreeReader(session).tree(10)).items
        assert len(row.text) <= 200
        assert not {"\n", "\x1b", "\u202e"} & set(row.text)
        assert (row.role, row.kind, row.is_on_branch) == ("user", "message", True)
