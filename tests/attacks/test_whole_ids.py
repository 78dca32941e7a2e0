"""Partial ids at every call of the library that takes an id: none is accepted."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import perdure
from perdure import assistant, user
from perdure.apps.maintenance.copy import copy_sessions
from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.agents.session_usage import revoke, standing_of
from perdure.client.flows.flows import Flows
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.errors import EntryNotFound, QuestionNotFound, SessionNotFound, WrongArgument
from perdure.session.codec import new_side, new_tree
from perdure.session.flows.graph import Graph
from perdure.session.flows.kinds import FlowImported
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.notes import Question
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore
from tests.fakes.inner_commands import run_here
from tests.fakes.postgres import PostgresServer

REFUSALS = (SessionNotFound, EntryNotFound, QuestionNotFound, WrongArgument)

STORES = [
    pytest.param("memory"),
    pytest.param("sqlite"),
    pytest.param("jsonl", marks=pytest.mark.full_only),
    pytest.param("postgres", marks=pytest.mark.full_only),
]

Call = Callable[[str], Awaitable[object]]


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with opened(request, str(request.param), tmp_path) as store:
        yield store


@asynccontextmanager
async def opened(
    request: pytest.FixtureRequest, backend: str, folder: Path
) -> AsyncGenerator[Store]:
    if backend != "postgres":
        addresses = {
            "memory": "memory:",
            "sqlite": f"sqlite:///{folder / 'store.db'}",
            "jsonl": f"jsonl:///{folder / 'sessions'}",
        }
        async with perdure.open(addresses[backend]) as store:
            yield store
        return
    server: PostgresServer = request.getfixturevalue("warm_postgres")
    address = server.take()
    async with perdure.open(address) as store:
        yield store
    server.give_back(address)


def near(id: str) -> Iterator[str]:
    """Yield texts that are not `id` but that a careless lookup would accept."""
    yield from (id[:length] for length in range(len(id)))
    yield from (id.upper(), f"{id} ", f" {id}", f"{id}\n", f"{id}\0", f"{id}*", f"{id}0")
    yield from (f"{id[:-1]}{each}" for each in ("%", "_", "?", "*", "\uff10", "\u0660"))
    yield from (f"{id}/", f"{id}/0", f"/{id}", f"./{id}", f"../{id}", f"x/../{id}", f"{id}.jsonl")
    yield from (f"{id}\u200b", "\ud800", "*", "%", ".", "..", "\N{UPWARDS ARROW}0")


async def filled(store: Store) -> Session:
    """Create a session ``user10`` with two branches, a foreign id and a question in `store`."""
    session = await store.create(id="user10", title="Trip")
    first = await session.append(user("Where to?"))
    await session.append(assistant("Lisbon"))
    named = new_tree(user("named"), alias="run7/3")
    question = new_side(Question("interrupted", "go on?", ("yes", "no")))
    await append(store.backend, session.id, named, question)
    await session.branch(first)
    return session


async def append(backend: SessionStore, stream: StreamId, *entries: object) -> None:
    write = Write(stream=stream, entries=entries)  # pyright: ignore[reportArgumentType] - new entries
    await backend.commit(Commit(writes=(write,), at=1))


async def get_through(store: Store, calls: dict[str, Call], forms: list[str]) -> list[str]:
    """Try each call with each form of an id; return accepted calls, and a change of the log."""
    before = await snapshot(store)
    through: list[str] = []
    for name, call in calls.items():
        for form in forms:
            try:
                await call(form)
            except REFUSALS:
                continue
            except Exception as error:  # noqa: BLE001 - any other failure is a finding
                through.append(f"{name}({form!r}): {error!r}")
            else:
                through.append(f"{name}({form!r})")
    if await snapshot(store) != before:
        through.append("something was written")
    kind, tried = store.backend.address.partition(":")[0], len(calls) * len(forms)
    sys.stdout.write(f"\n{kind}: {tried} forms tried, {len(through)} through\n")
    return through


async def snapshot(store: Store) -> list[str]:
    infos = await store.recent(limit=None, scope="all")
    return sorted([str(await store.backend.state(info.id)) for info in infos])


async def test_session_cannot_be_opened_or_changed_with_a_part_of_its_id(store: Store) -> None:
    await filled(store)
    async with perdure.open("memory:") as target:
        runtime = Runtime(store, agents=[Agent("helper", model="scripted:echo")])
        calls: dict[str, Call] = {
            "open": store.open,
            "erase": store.erase,
            "erase, forks too": lambda id: store.erase(id, forks="erase"),
            "search": lambda id: store.search("Lisbon", sessions=[id]),
            "resume": lambda id: runtime.resume(id, "helper"),
            "standing_of": lambda id: standing_of(store, id),
            "revoke": lambda id: revoke(store, id),
            "copy": lambda id: copy_sessions(store, target, sessions=[id]),
        }
        assert await get_through(store, calls, list(near("user10"))) == []
        assert await target.recent(scope="all") == []


async def test_entry_cannot_be_read_or_changed_with_a_part_of_its_id(store: Store) -> None:
    session = await filled(store)
    calls: dict[str, Call] = {
        "path": session.path,
        "branch": session.branch,
        "branch_with_summary": lambda id: session.branch_with_summary(id, "left"),
        "label": lambda id: session.label(id, "here"),
        "pin": session.pin,
        "unpin": session.unpin,
        "fork": lambda id: session.fork(at=id),
        "uncompact": session.uncompact,
        "left_by": session.left_by,
        "answer": lambda id: session.answer(id, "yes", by="ana"),
        "parent": lambda id: session.append(user("x"), parent=id),
        "expected_leaf": lambda id: session.append_many([user("x")], expected_leaf=id),
    }
    forms = [form for form in near("user10/0") if form != ""]
    forms += ["0", "1", "00", "-1", "user10/00", "user10/+0", "user10/0.0", "user1/0", ""]
    forms += ["run7", "run7/", "RUN7/3", "run7/3 ", "3", "r"]
    assert await get_through(store, calls, forms) == []
    for call in calls.values():
        with pytest.raises(WrongArgument):
            await call(0)  # pyright: ignore[reportArgumentType] - a seq is not an id
    assert [entry.id for entry in await session.path("run7/3")][-1] == "user10/2"


async def test_question_cannot_be_answered_with_a_part_of_its_id(store: Store) -> None:
    await filled(store)
    calls: dict[str, Call] = {"answer": lambda id: store.answer(id, "yes", by="ana")}
    assert await get_through(store, calls, [*near("user10/3"), "3", "user10"]) == []
    (question,) = await store.questions()
    assert await store.answer(question.id, "yes", by="ana")


async def test_flow_cannot_be_opened_or_changed_with_a_part_of_its_id(store: Store) -> None:
    if not store.backend.capabilities.multi_stream_commit:
        pytest.skip("this store keeps no flows")
    header = StreamHeader(StreamId("flow10"), 1, kind="flow")
    write = Write(stream=header.id, create=header)
    await store.backend.commit(Commit(writes=(write,), at=1))
    await append(store.backend, header.id, new_side(FlowImported({}, Graph("g", ()), {})))
    await store.create(id="session10")
    async with Flows(Runtime(store, agents=[])) as flows:
        calls: dict[str, Call] = {
            "open": flows.open,
            "state": flows.state,
            "outputs": flows.outputs,
            "delete": flows.delete,
        }
        forms = [*near("flow10"), "session10", "session1"]
        assert await get_through(store, calls, forms) == []


def test_blocking_handles_accept_whole_ids_only(tmp_path: Path) -> None:
    with perdure.blocking.open(f"sqlite:///{tmp_path / 'store.db'}") as store:
        session = store.create(id="user10")
        entry = session.append(user("x"))
        for form in near("user10"):
            for call in (store.open, store.erase):
                with pytest.raises(REFUSALS):
                    call(form)
        with pytest.raises(EntryNotFound):
            session.path("0")
        assert store.find("user1") == "user10"
        assert session.find("0") == entry.id


def test_command_line_erases_by_whole_ids_only(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'store.db'}"

    def run(*words: str) -> tuple[int, str]:
        ended = run_here(words, {**os.environ, "COLUMNS": "100"}, tmp_path)
        return ended.code, ended.out.decode() + ended.err

    with perdure.blocking.open(address) as store:
        for id in ("user10", "user11", "work"):
            store.create(id=id)
    for typed, names in (
        ("user1", ("user10", "user11")),
        ("wor", ("work",)),
        ("user", ("user10",)),
    ):
        code, told = run("sessions", "erase", typed, "--yes", "--store", address)
        assert code == 3
        assert all(name in told for name in names), told
    assert run("sessions", "show", "wor", "--store", address)[0] == 0
    assert run("sessions", "erase", "work", "--yes", "--store", address)[0] == 0
    with perdure.blocking.open(address) as store:
        assert {info.id for info in store.recent()} == {"user10", "user11"}
