"""``perdure schedule``, as the shell sees it."""

from __future__ import annotations

from datetime import UTC, datetime

import perdure
from tests.acceptance.cli.conftest import World

AGENT = perdure.Agent("helper", model="scripted:echo")


async def test_message_is_listed_and_cancelled_by_a_part_of_its_id(world: World) -> None:
    async with perdure.open(f"sqlite:///{world.file}") as store:
        async with perdure.Runtime(store, agents=[AGENT]) as runtime:
            chat = await runtime.start(AGENT)
            await chat.send("Is it green?", at=datetime(2100, 1, 1, tzinfo=UTC)).stored()
        session = chat.id
    [listed] = world.ok("schedule", "list", "--json").json
    assert (listed["session"], listed["text"]) == (session, "Is it green?")
    number = listed["id"].rpartition("/")[2]

    for wrong, code in (("nobody/1", 3), (f"{session[:12]}/9999", 2), (number, 2)):
        assert world.run("schedule", "cancel", wrong).code == code, wrong
    told = world.ok("schedule", "cancel", f"{session[:12]}/{number}")

    assert told.out == f"Cancelled {listed['id']}.\n"
    assert world.ok("schedule", "list").out == "Nothing is scheduled.\n"
