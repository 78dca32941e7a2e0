"""`perdure sessions tree` and pi's own `/tree` show the same entries."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import assistant, user
from tests.acceptance.pi.comparing import Places
from tests.acceptance.pi.moves import move
from tests.fakes.real_pi import RealPi
from tests.fakes.session_files import file_of

PERDURE = Path(sys.executable).with_name("perdure")
SESSIONS = 6
STEPS = 20

Row = tuple[str, str | None, str | None]
"""A row of the tree: its entry, parent and label."""


@pytest.mark.all_only
async def test_tree_of_pi_and_tree_of_perdure_show_the_same_entries(
    pi: RealPi, tmp_path: Path
) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    address = f"jsonl:///{folder}?dialect=pi"
    for seed in range(SESSIONS):
        chance = random.Random(seed)
        async with perdure.open(address, durability="normal") as store:
            session = await store.create(title=f"Tides {seed}", cwd="/harbour")
            await session.append(user("begin"), assistant("begun"))
            for _ in range(STEPS):
                await move(session, chance)
            path = file_of(folder, session.id)
            pi.ask("extend", path=path, seed=seed, steps=STEPS)
            shown = pi.ask("tree", path=path, filter="default")
            places = await Places.of(await store.open(path), shown["nodes"], path)
        tree = await tree_of(path, address)
        entries = {
            (places.entries[row["id"]], places.nearest(row["parent"]), row["label"])
            for row in shown["nodes"]
            if row["id"] in places.entries
        }
        assert {row for root in tree["roots"] for row in rows_below(root, None)} == entries
        assert tree["leaf"] == places.nearest(shown["leaf"])
        # What pi hides unasked: settings, state of extensions and what is ours alone.
        visible = {row["type"] for row in shown["rows"]}
        assert visible <= {
            "message",
            "compaction",
            "branch_summary",
            "custom_message",
            "session_info",
        }
        assert "begin" in shown["text"]


async def tree_of(path: Path, address: str) -> dict[str, Any]:
    command = [str(PERDURE), "sessions", "tree", str(path), "--all", "--json", "--store", address]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(out)


def rows_below(node: Mapping[str, Any], parent: str | None) -> Iterator[Row]:
    yield (node["id"], parent, node.get("label"))
    for child in node["children"]:
        yield from rows_below(child, node["id"])
