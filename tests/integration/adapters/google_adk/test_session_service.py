"""`PerdureSessionService` meets the ADK's contract of a session service, on SQLite and PostgreSQL.

The source archive of the ADK has no tests. The tests of this module follow the contract of the
ADK's base class and the behaviour of the ADK's own services.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

import perdure
from perdure.adapters.google_adk import PerdureSessionService, stored_sessions
from perdure.adapters.google_adk.markers import ATTRIBUTE
from perdure.adapters.google_adk.scoped_state import ScopedState
from perdure.adapters.google_adk.state import SNAPSHOT_AFTER
from perdure.errors import EntryNotFound, FormatError, WrongArgument
from tests.integration.adapters.conftest import POSTGRES_LATER

APP: dict[str, Any] = {"app_name": "app", "user_id": "ana"}


def said(text: str, invocation: str = "i", **actions: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    made = EventActions(**actions)
    return Event(invocation_id=invocation, author="user", content=content, actions=made)


def texts(session: Session | None) -> list[str | None]:
    assert session is not None
    return [
        event.content.parts[0].text if event.content and event.content.parts else None
        for event in session.events
    ]


async def again(service: BaseSessionService, session: Session, **config: Any) -> Session:
    names = {"app_name": session.app_name, "user_id": session.user_id, "session_id": session.id}
    found = await service.get_session(**names, config=GetSessionConfig(**config))
    assert found is not None
    return found


async def test_created_session_is_found_listed_and_deleted(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        service = PerdureSessionService(store)
        assert await service.get_session(**APP, session_id="none") is None
        made = await service.create_session(**APP, state={"a": 1}, session_id=" s ")
        assert made.id == "s"
        assert made.state == {"a": 1}
        assert await again(service, made) == made
        with pytest.raises(AlreadyExistsError):
            await service.create_session(**APP, session_id="s")
        other = await service.create_session(app_name="app", user_id="ben", session_id="s")
        await service.append_event(other, said("of ben"))
        assert texts(await again(service, made)) == []
        assert len((await service.create_session(**APP)).id) == 36
        await service.delete_session(**APP, session_id="s")
        await service.delete_session(**APP, session_id="s")
        assert await service.get_session(**APP, session_id="s") is None
        with pytest.raises(SessionNotFoundError):
            await service.append_event(made, said("late"))
        assert (await service.create_session(**APP, session_id="s")).state == {}
        listed = await service.list_sessions(app_name="app")
        assert {(each.user_id, each.id) for each in listed.sessions} >= {("ana", "s"), ("ben", "s")}


async def test_sessions_are_listed_oldest_first_with_their_state(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        service = PerdureSessionService(store)
        for number in range(4):
            user = "ana" if number < 3 else "ben"
            names = {"app_name": "app", "user_id": user, "session_id": f"s{number}"}
            session = await service.create_session(**names, state={"n": number, "user:name": user})
            event = Event(invocation_id="i", author="user", timestamp=100.5 - number)
            await service.append_event(session, event)
        await service.create_session(app_name="app2", user_id="ana")
        for reader in (service, PerdureSessionService(store)):
            listed = (await reader.list_sessions(**APP)).sessions
            assert [each.id for each in listed] == ["s2", "s1", "s0"]
            assert [each.last_update_time for each in listed] == [98.5, 99.5, 100.5]
            assert listed[0].state == {"n": 2, "user:name": "ana"}
            everyone = (await reader.list_sessions(app_name="app")).sessions
            assert [each.id for each in everyone] == ["s3", "s2", "s1", "s0"]
            assert everyone[0].state == {"n": 3, "user:name": "ben"}
        assert (await service.list_sessions(app_name="ap")).sessions == []


@pytest.mark.parametrize("state", [{"a": 1}, {"a": 1, "user:b": 2}])
async def test_only_one_of_two_session_copies_can_append_the_next_event(
    store_address: str, state: dict[str, int]
) -> None:
    async with perdure.open(store_address) as store:
        made = await PerdureSessionService(store).create_session(**APP, state=state, session_id="s")
    async with perdure.open(store_address) as store:
        service = PerdureSessionService(store)
        (one,) = (await service.list_sessions(**APP)).sessions
        (two,) = (await PerdureSessionService(store).list_sessions(**APP)).sessions
        assert one == two == made
        await service.append_event(one, said("hello"))
        with pytest.raises(StaleSessionError):
            await service.append_event(two, said("late"))
        assert texts(await again(service, made)) == ["hello"]


async def test_state_is_shared_according_to_its_scope(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        service = PerdureSessionService(store)
        first = await service.create_session(**APP, state={"app:a": 1, "user:u": 1, "temp:t": 1})
        assert first.state == {"app:a": 1, "user:u": 1}
        delta = {"app:b": 2, "user:u": 2, "own": 2, "temp:t": 2}
        event = said("x", state_delta=dict(delta))
        await service.append_event(first, event)
        assert first.state == {"app:a": 1, **delta}
        assert event.actions.state_delta.keys() == {"app:b", "user:u", "own"}
        other = PerdureSessionService(store)
        assert (await again(other, first)).state == {"app:a": 1, "app:b": 2, "user:u": 2, "own": 2}
        second = await other.create_session(**APP)
        assert second.state == {"app:a": 1, "app:b": 2, "user:u": 2}
        ben = await other.create_session(app_name="app", user_id="ben")
        assert ben.state == {"app:a": 1, "app:b": 2}
        assert (await other.create_session(app_name="b", user_id="ana")).state == {}
        assert await service.get_user_state(**APP) == {"u": 2}
        assert await service.get_user_state(app_name="app", user_id="ben") == {}


async def test_event_and_its_state_changes_are_stored_in_one_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with perdure.open("memory:") as store:
        service = PerdureSessionService(store)
        session = await service.create_session(**APP, state={"n": 0, "user:n": 0, "app:n": 0})
        commits = 0
        commit = store.backend.commit

        async def counted(*values: Any) -> Any:
            nonlocal commits
            commits += 1
            return await commit(*values)

        monkeypatch.setattr(store.backend, "commit", counted)
        for number in range(1, 4):
            delta = {"n": number, "user:n": number, "app:n": number}
            await service.append_event(session, said(f"{number}", state_delta=delta))
            assert commits == number
            read = await again(PerdureSessionService(store), session)
            assert read.state == delta
            assert texts(read)[-1] == f"{number}"


@POSTGRES_LATER
async def test_state_after_many_changes_is_read_from_snapshots(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        service = PerdureSessionService(store)
        session = await service.create_session(**APP, state={"first": True})
        for number in range(150):
            delta = {"n": number, f"k{number % 7}": number, "user:n": number}
            await service.append_event(session, said(f"{number}", state_delta=delta))
        cold = PerdureSessionService(store)
        read = await again(cold, session, num_recent_events=2)
        assert read.state == session.state
        assert texts(read) == ["148", "149"]
        assert await again(PerdureSessionService(store), session) == session
        notes = [note async for note in (await store.open(f"adk:app:ana:{session.id}")).notes()]
        assert len(notes) == 2


async def test_change_during_a_snapshot_of_shared_state_is_kept() -> None:
    class Late(ScopedState):
        """Reads the state, and only then does a rival change it."""

        async def _refold(self, session: perdure.Session) -> None:
            await super()._refold(session)
            await store.commit([await rival.write({"late": True})])

    async with perdure.open("memory:") as store:
        rival, late = (made(store, "adk-app:app", {}, None) for made in (ScopedState, Late))
        for number in range(SNAPSHOT_AFTER):
            await store.commit([await rival.write({"n": number})])
        await late.snapshot()
        state = await ScopedState(store, "adk-app:app", {}, None).values()
        assert state == {"n": SNAPSHOT_AFTER - 1, "late": True}


async def test_invalid_state_notes_of_other_programs_are_reported_and_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shapes: list[dict[str, object]] = [
        {"n": 7},
        {"json": "{"},
        {"json": "[7]"},
        {"json": 7},
        {"json": '{"state": 7, "updated_at": "now"}'},
        {"content": 7},
        {"content": {"handle": "of nothing"}},
    ]
    async with perdure.open("memory:") as store:
        service = PerdureSessionService(store)
        session = await service.create_session(**APP, session_id="s", state={"n": 1, "user:n": 1})
        for id in ("adk:app:ana:s", "adk-user:app:ana"):
            stored = await store.open(id)
            for shape in shapes[:4] + shapes[5:] if id.startswith("adk-user") else shapes:
                for type in ("adk.state", "adk.state.change"):
                    await stored.append_many([perdure.Note(type, shape)], aliases=["adk.state"])
        for reader in (service, PerdureSessionService(store)):
            read = await again(reader, session)
            assert read.state == {"n": 1, "user:n": 1}
            assert [each.state for each in (await reader.list_sessions(**APP)).sessions] == [
                read.state
            ]
        await service.append_event(read, said("x", state_delta={"n": 2, "user:n": 2}))
        assert (await again(PerdureSessionService(store), session)).state == {"n": 2, "user:n": 2}
    assert "note adk:app:ana:s/1 is not counted: this adapter did not write it" in caplog.text


async def test_malformed_events_of_other_writers_are_left_out() -> None:
    async with perdure.open("memory:") as store:
        service = PerdureSessionService(store)
        session = await service.create_session(**APP, session_id="s", state={"n": 1})
        stored = await store.open("adk:app:ana:s")
        shapes: list[dict[str, object]] = [{"json": "[]"}, {"json": "7"}]
        for shape in (*shapes, {"content": {"handle": "x"}}):
            await stored.append(perdure.Custom("adk.event", shape))
        for reader in (service, PerdureSessionService(store)):
            assert (await again(reader, session)).events == []
            assert [each.id for each in (await reader.list_sessions(**APP)).sessions] == ["s"]
        absent = {"handle": f"media://sha256-{'0' * 64}"}  # as of an event whose content is lost
        await stored.append(perdure.Custom("adk.event", {"content": absent}))
        with pytest.raises(EntryNotFound):
            await again(service, session)


@pytest.mark.parametrize(
    "text",
    [
        '{"actions": 7}',
        '{"actions": {"state_delta": 7}}',
        '{"timestamp": "now"}',
        '{"author": "ana", "content": {"parts": 7}}',
    ],
)
async def test_entry_with_invalid_event_json_is_reported_with_its_id(text: str) -> None:
    async with perdure.open("memory:") as store:
        service = PerdureSessionService(store)
        session = await service.create_session(**APP, session_id="s", state={"n": 1})
        stored = await store.open("adk:app:ana:s")
        entry = await stored.append(perdure.Custom("adk.event", {"json": text}))
        for reader in (service, PerdureSessionService(store)):
            with pytest.raises(FormatError, match=f"^{entry.id}.* no event of the ADK"):
                await again(reader, session)


async def test_message_of_another_program_is_read_despite_invalid_event_json() -> None:
    async with perdure.open("memory:") as store:
        service = PerdureSessionService(store)
        session = await service.create_session(**APP, session_id="s")
        stored = await store.open("adk:app:ana:s")
        foreign: dict[str, object] = {"adk_event": {"actions": 7}}
        await stored.append(perdure.user("hello", foreign=foreign))
        assert texts(await again(service, session)) == ["hello"]


class Unmarked(Session):
    """A session of an ADK release that lacks the private attribute for the update marker."""


Unmarked.__private_attributes__.pop(ATTRIBUTE)


class Refusing(Unmarked):
    """A session of an ADK release that rejects a value for the private attribute."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == ATTRIBUTE:
            raise ValueError(name)
        super().__setattr__(name, value)


Refusing.__private_attributes__.pop(ATTRIBUTE, None)


@pytest.mark.parametrize("released", [Unmarked, Refusing])
async def test_outdated_session_is_rejected_even_in_other_adk_releases(
    released: type[Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert getattr(Session(**APP, id="s"), ATTRIBUTE, "none") is None  # this release has it
    assert not hasattr(released(**APP, id="s"), ATTRIBUTE)
    monkeypatch.setattr(stored_sessions, "Session", released)
    async with perdure.open("memory:") as store:
        service = PerdureSessionService(store)
        session = await service.create_session(**APP)
        assert type(session) is released
        old = await again(service, session)
        assert hasattr(old, ATTRIBUTE) is (released is Unmarked)
        for text in ("a", "b"):
            await asyncio.sleep(0.002)  # the times of events are compared
            await service.append_event(session, said(text))
        with pytest.raises(StaleSessionError):
            await service.append_event(old, said("c"))
        read = await again(service, session)
        assert texts(read) == ["a", "b"]
        assert read.model_dump() == session.model_dump()


async def test_session_config_limits_the_returned_events(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        service = PerdureSessionService(store)
        session = await service.create_session(**APP)
        for number in range(1, 6):
            await service.append_event(session, Event(author="user", timestamp=number))
        stored = await store.open(f"adk:app:ana:{session.id}")
        await stored.append(*(perdure.Custom("other", {"n": n}) for n in range(9)))

        async def times(**config: Any) -> list[float]:
            return [event.timestamp for event in (await again(service, session, **config)).events]

        assert await times() == [1, 2, 3, 4, 5]
        assert await times(num_recent_events=0) == []
        assert await times(num_recent_events=3) == [3, 4, 5]
        assert await times(after_timestamp=4.0) == [4, 5]
        assert await times(after_timestamp=50.0) == []
        assert await times(after_timestamp=4.0, num_recent_events=3) == [4, 5]


async def test_append_is_rejected_after_another_handle_added_an_event(
    store_address: str,
) -> None:
    async with perdure.open(store_address) as store:
        one, two = PerdureSessionService(store), PerdureSessionService(store)
        ours = await one.create_session(**APP)
        theirs = await again(two, ours)
        await two.append_event(theirs, said("first"))
        with pytest.raises(StaleSessionError, match="modified in storage"):
            await one.append_event(ours, said("stale"))
        ours = await again(one, ours)
        await (await store.open(f"adk:app:ana:{ours.id}")).rename("A title")
        await one.append_event(ours, said("second"))
        await one.append_event(ours, Event(author="user", partial=True))
        assert texts(await again(two, ours)) == ["first", "second"]
        copies = [ours.model_copy(deep=True) for _ in range(5)]
        work = [one.append_event(copy, said(f"{n}")) for n, copy in enumerate(copies)]
        done = await asyncio.gather(*work, return_exceptions=True)
        assert sum(isinstance(each, StaleSessionError) for each in done) == 4


async def test_session_copy_with_an_old_update_time_is_rejected(
    store_address: str,
) -> None:
    async with perdure.open(store_address) as store:
        service = PerdureSessionService(store)
        session = await service.create_session(**APP, session_id="s")
        old = Session(**APP, id="s", last_update_time=session.last_update_time)
        await service.append_event(session, said("a"))
        new = Session(**APP, id="s", last_update_time=session.last_update_time)
        await service.append_event(new, said("b"))
        with pytest.raises(StaleSessionError):
            await service.append_event(old, said("c"))


@POSTGRES_LATER
async def test_append_to_a_session_that_was_deleted_and_recreated_is_rejected(
    store_address: str,
) -> None:
    async with perdure.open(store_address) as store:
        for events in range(3):  # as many as before, fewer, and more
            ours, theirs = PerdureSessionService(store), PerdureSessionService(store)
            old = await ours.create_session(**APP, session_id="s")
            await ours.append_event(old, said("old"))
            await asyncio.sleep(0.002)
            await theirs.delete_session(**APP, session_id="s")
            new = await theirs.create_session(**APP, session_id="s")
            for number in range(events):
                await theirs.append_event(new, said(f"new {number}"))
            with pytest.raises(StaleSessionError):
                await ours.append_event(old, said("old again"))
            assert texts(await again(ours, new)) == [f"new {number}" for number in range(events)]
            await theirs.delete_session(**APP, session_id="s")


async def test_parallel_agents_share_one_session_object(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        service = PerdureSessionService(store)
        session = await service.create_session(**APP)
        events = [said(f"{number}") for number in range(8)]
        await asyncio.gather(*(service.append_event(session, event) for event in events))
        assert sorted(map(str, texts(await again(service, session)))) == [str(n) for n in range(8)]


async def test_state_is_complete_after_session_creation_is_killed(
    store_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with perdure.open(store_address) as store:

        async def killed(*_: object, **__: object) -> None:
            raise ConnectionAbortedError

        with monkeypatch.context() as patched:
            patched.setattr(type(store), "commit", killed)
            with pytest.raises(ConnectionAbortedError):
                await PerdureSessionService(store).create_session(
                    **APP, session_id="s", state={"app:a": 1, "user:u": 2, "own": 3}
                )
        (listed,) = (await PerdureSessionService(store).list_sessions(**APP)).sessions
        assert listed.state == {"app:a": 1, "user:u": 2, "own": 3}
        service = PerdureSessionService(store)
        await service.append_event(listed, said("x", state_delta={"app:a": 9}))
        assert (await again(PerdureSessionService(store), listed)).state["app:a"] == 9


class Model(BaseLlm):
    """A model that calls a tool once, then answers."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        last = llm_request.contents[-1].parts or []
        if any(part.function_response for part in last):
            part = types.Part(text="On the cape.")
        else:
            call = types.FunctionCall(name="look", args={"at": "map"})
            part = types.Part(function_call=call)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def runner(service: BaseSessionService) -> Runner:
    def look(at: str) -> dict[str, str]:
        """Look at something."""
        return {"found": at}

    agent = LlmAgent(name="guide", model=Model(model="scripted"), tools=[look])
    return Runner(app_name="app", agent=agent, session_service=service)


async def ask(running: Runner, session: Session, text: str) -> None:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    names: dict[str, Any] = {"user_id": session.user_id, "session_id": session.id}
    async for _ in running.run_async(**names, new_message=content):
        pass


@pytest.mark.full_only
async def test_agent_run_is_stored_as_readable_session(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        service, memory = PerdureSessionService(store), InMemorySessionService()
        for each in (service, memory):
            session = await each.create_session(**APP, session_id="s")
            await ask(runner(each), session, "Where is the lighthouse?")
            await ask(runner(each), session, "And the harbour?")
        ours = await again(service, session)
        theirs = await again(memory, session)
        assert [each.author for each in ours.events] == [each.author for each in theirs.events]
        (info,) = await store.recent(subject="app:ana")
        assert info.id == "adk:app:ana:s"
        assert info.first_text == "Where is the lighthouse?"
        (hit, *_) = await store.search("lighthouse")
        assert hit.stream == info.id
        stored = await store.open(info.id)
        roles = [message.role for message in await stored.messages()]
        assert roles == ["user", "assistant", "tool", "assistant"] * 2
        fork = await stored.fork()
        assert len(await fork.messages()) == 8
        assert b"lighthouse" in (await stored.export("markdown")).content
        await stored.append(perdure.user("Thanks"), perdure.assistant("Always."))
        assert texts(await again(service, session))[-2:] == ["Thanks", "Always."]


@pytest.mark.full_only
async def test_rewind_moves_the_conversation_to_a_branch(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        service = PerdureSessionService(store)
        session = await service.create_session(**APP, session_id="s")
        await ask(runner(service), session, "one")
        await ask(runner(service), session, "two")
        read = await again(service, session)
        second = read.events[-1].invocation_id
        await runner(service).rewind_async(
            user_id="ana", session_id="s", rewind_before_invocation_id=second
        )
        await ask(runner(service), session, "three")
        stored = await store.open("adk:app:ana:s")
        users = [m.text for m in await stored.messages() if m.role == "user"]
        assert users == ["one", "three"]
        assert [
            t for t in texts(await again(service, session)) if t in ("one", "two", "three")
        ] == [
            "one",
            "two",
            "three",
        ]


async def test_ids_of_two_persons_never_collide(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        service = PerdureSessionService(store)
        for user, name in (("a:b", "c"), ("a", "b:c"), ("a b", "ä"), ("", "x" * 300)):
            names: dict[str, Any] = {"app_name": "app", "user_id": user, "session_id": name}
            session = await service.create_session(**names)
            await service.append_event(session, said(user or "nobody"))
        for user, name in (("a:b", "c"), ("a", "b:c"), ("a b", "ä"), ("", "x" * 300)):
            found = await service.get_session(app_name="app", user_id=user, session_id=name)
            assert texts(found) == [user or "nobody"]
            listed = (await service.list_sessions(app_name="app", user_id=user)).sessions
            assert [each.id for each in listed] == [name]


async def test_erasing_subject_erases_only_its_sessions_and_state(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        service = PerdureSessionService(store)
        await service.create_session(**APP, session_id="s", state={"user:u": 1, "app:a": 1})
        await store.erase(subject="app:ana")
        assert (await service.list_sessions(**APP)).sessions == []
        assert await service.get_user_state(**APP) == {}
        made = await service.create_session(**APP, session_id="s", state={"user:v": 2})
        assert made.state == {"app:a": 1, "user:v": 2}


async def test_session_of_another_program_is_refused() -> None:
    async with perdure.open("memory:") as store:
        await store.create(id="adk:app:ana:notes")
        with pytest.raises(WrongArgument, match="no session of the ADK"):
            await PerdureSessionService(store).get_session(**APP, session_id="notes")


def test_blocking_store_works_on_any_event_loop(store_address: str) -> None:
    with perdure.blocking.open(store_address) as store:
        service = PerdureSessionService(store)
        session = asyncio.run(service.create_session(**APP))
        for number in range(3):
            asyncio.run(service.append_event(session, said(f"{number}")))
        assert texts(asyncio.run(again(service, session))) == ["0", "1", "2"]
