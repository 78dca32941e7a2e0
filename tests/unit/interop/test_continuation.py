"""A session for other programs: file, place and command."""

from __future__ import annotations

import pytest

from perdure.interop.continuation import PROGRAMS, Program, continuation_of
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId
from perdure.session.messages import assistant, user
from perdure.stores.in_memory.store import MemoryStore
from tests.fakes.sources import empty_store
from tests.fakes.streams import append, create

SESSION = StreamId("s")


async def stored() -> MemoryStore:
    store = empty_store()
    await create(store, SESSION)
    said = (user("Which bird?"), assistant("A heron."))
    await append(store, *map(new_tree, said), stream=SESSION)
    return store


@pytest.mark.parametrize("program", PROGRAMS)
async def test_same_leaf_gives_the_same_file_and_command(program: Program) -> None:
    store = await stored()
    first = await continuation_of(store, SESSION, program, cwd="/srv/birds")
    assert first == await continuation_of(store, SESSION, program, cwd="/srv/birds")
    assert first.cwd == "/srv/birds"
    assert not first.path.is_absolute()
    await append(store, new_tree(user("And this one?")), stream=SESSION)
    later = await continuation_of(store, SESSION, program, cwd="/srv/birds")
    assert later.path != first.path
    assert b"And this one?" in later.exported.content


async def test_earlier_leaf_leaves_the_rest_out() -> None:
    store = await stored()
    asked = (await store.tree(SESSION))[0].id
    made = await continuation_of(store, SESSION, "codex", cwd="/srv", leaf=asked)
    assert b"A heron." not in made.exported.content


async def test_folder_of_claude_code_and_pi_tells_the_working_directory() -> None:
    store = await stored()
    claude = await continuation_of(store, SESSION, "claude-code", cwd="/srv/birds")
    assert claude.path.parts[0] == "-srv-birds"
    pi = await continuation_of(store, SESSION, "pi", cwd="/srv/birds")
    assert pi.path.parts[0] == "--srv-birds--"
