"""Rows of a tree: the text of each row is one line, whatever its entry contains."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import perdure
from perdure.apps.server import trees
from perdure.apps.server.trees import read_tree, tree_since


async def test_text_of_a_tree_row_is_one_short_line() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create()
        await session.append(perdure.user("first\nsecond\u202e\x1b[31m " + "x" * 5_000))
        (row,) = (await read_tree(session, 10)).items
        assert len(row.text) <= 200
        assert not {"\n", "\x1b", "\u202e"} & set(row.text)
        assert (row.role, row.kind, row.is_on_branch) == ("user", "message", True)


@pytest.mark.parametrize("first", [2, 7, 1_000])
async def test_partial_tree_contains_all_siblings_of_the_shown_entries(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "_FIRST", first)
    dice = random.Random(first)
    async with perdure.open("memory:") as store:
        session = await store.create()
        for n in range(40):
            if n % 9 == 8:
                await session.branch(dice.choice(await session.tree_entries()).id)
            await session.append(perdure.user(f"m{n}"))
        fork = await session.fork((await session.path())[-2].id)
        for n in range(3):
            await fork.append(perdure.user(f"f{n}"))
        for each in (session, fork):
            whole = Counter(entry.parent_id for entry in await each.tree_entries())
            path = await each.path()
            for end in range(2, len(path) + 1, 3):
                shown = path[max(end - 3, 0) : end]
                found = Counter(entry.parent_id for entry in await tree_since(each, shown))
                assert all(found[entry.parent_id] == whole[entry.parent_id] for entry in shown)
