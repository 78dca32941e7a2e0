"""``perdure schedule``, as used in a shell."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import perdure
from tests.acceptance.cli.conftest import World

AGENT = perdure.Agent("helper", model="scripted:echo")


async def test_scheduled_message_is_cancelled_by_a_part_of_its_id(world: World) -> None:
    async with perdure.open(f"sqlite:///{world.file}") as store:
        async with perdure.Runtime(store, agents=[AGENT]) as runtime:
            chat = await runtime.start(AGENT)
            await chat.send("Is it green?", at=datetime(2100, 1, 1, tzinfo=UTC)).stored()
        session = chat.id
    [listed] = world.ok("schedule", "list", "--json").json
    assert (listed["session"], listed["text"]) == (session, "Is it green?")
    number = listed["id"].rpartition("/")[2]

    for wrong in ("nobody/1", f"{session[:12]}/9999", number):
        assert world.run("schedule", "cancel", wrong).code == 3, wrong
    told = world.ok("schedule", "cancel", f"{session[:12]}/{number}")

    assert told.out == f"Cancelled {listed['id']}.\n"
    assert world.ok("schedule", "list").out == "Nothing is scheduled.\n"


def test_scheduled_message_of_a_session_is_listed_with_the_agent(world: World) -> None:
    world.ok("chat", "-p", "hi")
    [session] = world.ok("sessions", "list", "--json").json
    before = datetime.now(UTC).replace(microsecond=0)  # times in the log have milliseconds
    words = ("schedule", "add", session["id"][:12], "Is it green?")

    added = world.ok(*words, "--at", "2h", "--json").json
    due = datetime.fromisoformat(added["due_at"])
    assert before + timedelta(hours=2) <= due <= datetime.now(UTC) + timedelta(hours=2, seconds=1)
    assert (added["session"], added["text"]) == (session["id"], "Is it green?")
    told = world.ok(*words, "--at", "2100-01-01T09:00").out
    assert f"a process with {added['agent']} sends it" in " ".join(told.split())
    listed = world.ok("schedule", "list", "--json").json
    assert [each["agent"] for each in listed] == [added["agent"]] * 2
    assert added["agent"] in world.ok("schedule", "list").out

    for at in ("yesterday", "2020-01-01", "soon", "2h ago"):
        assert world.run(*words, "--at", at).code == 2, at
    assert world.run("schedule", "add", "nobody", "Hello", "--at", "2h").code == 3
    assert world.run("schedule", "add", session["id"], "", "--at", "2h").code == 2
    assert len(world.ok("schedule", "list", "--json").json) == 2


async def test_scheduled_message_waits_for_the_agent_of_its_session(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(world.folder))  # a program of the same user
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    async with perdure.open(f"sqlite:///{world.file}") as store:
        async with perdure.Runtime(store, agents=[AGENT]) as runtime:
            chat = await runtime.start(AGENT)
            await chat.send("hi")
        added = world.ok("schedule", "add", chat.id, "Is it green?", "--at", "2h", "--json").json
        assert added["agent"] == "helper"
        [waiting] = await store.schedule.list()
    assert (waiting.id, waiting.message.text) == (added["id"], "Is it green?")
