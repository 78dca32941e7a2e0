"""The erasure calls of the handles: the requests to the backend, and the state of the handles."""

from __future__ import annotations

import pytest

import perdure
from perdure import user
from perdure.events.wire import wire
from perdure.testing import ScriptedModel


async def test_session_cannot_be_opened_after_its_erasure() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create(title="Trip")
        await session.append(user("secret"))

        certificate = await session.erase(by="ann")

        assert (certificate.by, certificate.entries) == ("ann", 1)
        assert certificate.is_complete
        assert await store.recent() == []
        with pytest.raises(perdure.errors.Erased):
            await store.open(session.id)
        with pytest.raises(perdure.errors.Erased):
            await session.append(user("more"))
        assert await store.erasures() == [certificate]


async def test_erasing_a_session_with_forks_needs_a_fork_policy() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create()
        await session.append(user("a"))
        fork = await session.fork()

        with pytest.raises(perdure.errors.SessionHasForks):
            await store.erase(session.id)
        await store.erase(session.id, forks="keep")

        assert [message.text for message in await fork.messages()] == ["a"]


async def test_erased_subject_is_named_only_in_the_certificate() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create(subject="ann")
        await session.append(user("a"))
        fork = await session.fork()
        await fork.append(user("b"))

        certificate = await store.erase(subject="ann")

        assert certificate.subject == "ann"
        assert {each.session for each in certificate.sessions} == {session.id, fork.id}
        assert [each.subject for each in await store.erasures()] == [None]


async def test_erasure_of_everything_erases_all_sessions_of_the_namespace() -> None:
    async with perdure.open("memory:") as store:
        for _ in range(3):
            await (await store.create()).append(user("a"))

        assert len((await store.erase(everything=True)).sessions) == 3
        assert await store.recent(scope="all") == []


async def test_erasure_accepts_exactly_one_of_its_target_arguments() -> None:
    async with perdure.open("memory:") as store:
        with pytest.raises(ValueError, match=r"^erase exactly one of session, subject and "):
            await store.erase()
        with pytest.raises(ValueError, match=r"^erase exactly one of session, subject and "):
            await store.erase("s", subject="ann")


async def test_chat_does_not_send_entry_erased_between_its_turns() -> None:
    models = ScriptedModel(["one", "two"])
    async with (
        perdure.open("memory:") as store,
        perdure.Runtime(store, agents=[perdure.Agent("a", model="x:y")], models=models) as runtime,
    ):
        chat = await runtime.start("a", id="s")
        await chat.send("my word is tulipwood")
        session = await store.open("s")
        said = [entry async for entry in session.entries(kind="message")]
        await session.erase_entries(said[:1])
        await chat.send("again")
        assert "tulipwood" not in str(wire(models.requests[-1].messages))
        assert "again" in str(wire(models.requests[-1].messages))
        assert [entry async for entry in session.entries() if b"tulipwood" in entry.body] == []


async def test_open_handle_of_an_erased_session_raises_erased() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create()
        await session.append(user("told"))
        fork = await session.fork()
        handle = await store.open(session.id)
        await session.erase(forks="keep")

        with pytest.raises(perdure.errors.Erased):
            await handle.path(last=1)
        assert [message.text for message in await fork.messages()] == ["told"]
