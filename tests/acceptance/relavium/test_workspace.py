"""A session moves to another folder: tools, prompt and names follow, even after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure import Selection, Workspace
from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.client.agents.runtime import Runtime
from perdure.client.clock import SystemClock, system_random
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.errors import ConfigError, SecretPasted, TurnOpen, Waiting, WrongArgument
from perdure.interop.imports import import_source
from perdure.session.messages import ToolResultPart
from perdure.session.notes import WorkspaceChanged
from tests.acceptance.cli.conftest import SAMPLE, SAMPLE_ID
from tests.fakes.players import Hold, Players, asks, words

AGENT = Agent(
    "helper",
    model="scripted:main",
    instructions="In {{ctx.working_dir}} for {{ctx.shop}}.",
    tools=("read_file", "write_file"),
)


class Shops:
    """Two folders with a file of the same name, and the address of a store."""

    def __init__(self, folder: Path) -> None:
        self.address = f"sqlite:///{folder / 'store.db'}"
        self.first, self.second = folder / "one", folder / "two"
        for each in (self.first, self.second):
            each.mkdir()
            (each / "f.txt").write_text(f"in {each.name}")
        self.place = Workspace(str(self.first), variables={"shop": "tea"})

    async def start(self) -> None:
        """Run one turn in the first folder; the session is ``s``."""
        async with perdure.open(self.address) as store, Runtime(store, [AGENT]) as runtime:
            await runtime.start(AGENT, workspace=self.place, id="s")


def runtime(store: Store, players: Players, agent: Agent = AGENT) -> Runtime:
    return Runtime(store, [agent], models=players)


async def seen(chat: Chat, players: Players) -> tuple[str, str | None]:
    """Let `chat` read the file; return the tool's result and the system prompt of the request."""
    await chat.send("read")
    request = players.requests[-1]
    (result,) = [part for part in request.messages[-1].parts if isinstance(part, ToolResultPart)]
    return result.text, request.system


def reading(times: int = 1) -> Players:
    acts = [
        act
        for _ in range(times)
        for act in (asks("read_file", json='{"path": "f.txt"}'), words("ok"))
    ]
    return Players(main=acts)


async def test_agent_of_a_fork_works_in_the_folder_given_to_the_fork(tmp_path: Path) -> None:
    shops = Shops(tmp_path)
    await shops.start()
    async with perdure.open(shops.address) as store:
        fork: Session = await (await store.open("s")).fork(cwd=shops.second, id="f")
        assert (await fork.info()).cwd == str(shops.second)
    for session, folder in (("f", shops.second), ("s", shops.first)):
        players = reading()
        async with perdure.open(shops.address) as store, runtime(store, players) as answering:
            chat = await answering.resume(session)
            assert chat.workspace.working_dir == str(folder)
            text, system = await seen(chat, players)
            assert f"in {folder.name}" in text
            assert system == f"In {folder} for tea."


async def test_resume_with_workspace_moves_the_session_permanently(tmp_path: Path) -> None:
    shops = Shops(tmp_path)
    await shops.start()
    moved = Workspace(str(shops.second), variables={"shop": "{{ctx.working_dir}}"})
    for workspace in (moved, None):
        players = reading()
        async with perdure.open(shops.address) as store, runtime(store, players) as answering:
            chat = await answering.resume("s", workspace=workspace)
            text, system = await seen(chat, players)
            assert "in two" in text
            assert system == f"In {shops.second} for {{{{ctx.working_dir}}}}."
            assert (await chat.session.info()).cwd == str(shops.second)
            (found,) = await store.recent(cwd=shops.second)
            assert found.id == "s"


@pytest.mark.parametrize("scheme", ["sqlite:///{}/other.db", "jsonl:///{}/files", "memory:"])
async def test_forks_of_a_fork_inherit_its_folder_in_every_store(
    tmp_path: Path, scheme: str
) -> None:
    shops = Shops(tmp_path)
    async with (
        perdure.open(scheme.format(str(tmp_path))) as store,
        runtime(store, reading()) as answering,
    ):
        chat = await answering.start(AGENT, workspace=shops.place)
        await chat.send("hello")
        fork = await chat.session.fork(cwd=shops.second)
        for session in (fork, await fork.fork()):
            moved = await answering.resume(session.id)
            players = reading()
            assert moved.workspace.working_dir == str(shops.second)
            del players
        assert (await answering.resume(chat.id)).workspace.working_dir == str(shops.first)


async def test_fork_of_an_import_uses_the_folder_given_to_the_fork(tmp_path: Path) -> None:
    shops = Shops(tmp_path)
    agent = Agent("local", model="scripted:main", tools=("read_file",))
    async with perdure.open("memory:") as store:
        await import_source(store.backend, SAMPLE, clock=SystemClock(), random=system_random)
        fork = await (await store.open(SAMPLE_ID)).fork(cwd=shops.second)
        async with runtime(store, Players(), agent) as answering:
            chat = await answering.resume((await fork.fork()).id, agent)
            assert chat.workspace.working_dir == str(shops.second)
            again = await answering.resume(chat.id)
            assert again.workspace.working_dir == str(shops.second)


async def test_workspace_move_during_an_open_turn_is_refused(tmp_path: Path) -> None:
    shops = Shops(tmp_path)
    await shops.start()
    hold = Hold()
    async with perdure.open(shops.address) as store:
        async with runtime(store, Players(main=[[hold]])) as answering:
            chat = await answering.resume("s")
            chat.send("wait")
            await hold.entered.wait()
            await answering.suspend()
        async with runtime(store, reading()) as answering:
            with pytest.raises(TurnOpen):
                await answering.resume("s", workspace=Workspace(str(shops.second)))
            assert (await (await store.open("s")).info()).cwd == str(shops.first)


async def test_workspace_change_that_extends_access_is_refused(
    tmp_path: Path,
) -> None:
    shops = Shops(tmp_path)
    await shops.start()
    async with perdure.open(shops.address) as store, runtime(store, Players()) as answering:
        with pytest.raises(ConfigError, match="full would be wider"):
            await answering.resume("s", AGENT, workspace=Workspace(str(shops.second), scope="full"))
        place = Workspace(str(shops.second), variables={"k": "AKIA" + "IOSFODNN7EXAMPLE"})
        with pytest.raises(SecretPasted):
            await answering.resume("s", AGENT, workspace=place)
        with pytest.raises(ConfigError, match=r"\{\{ctx\.shop\}\}"):
            await answering.start(AGENT, workspace=Workspace(shops.first))
        narrowed = await answering.resume(
            "s", AGENT, workspace=Workspace(str(shops.second), scope="sandboxed")
        )
        assert narrowed.agent.permissions.scope == "sandboxed"
        assert len(await store.recent(scope="all")) == 1


EDITOR = Agent(
    "editor",
    model="scripted:main",
    instructions="Shop {{ctx.shop}}, file {{ctx.active_file}}, lines {{ctx.selection}}.",
)


async def test_message_can_set_file_selection_and_variables(tmp_path: Path) -> None:
    shops = Shops(tmp_path)
    place = Workspace(str(shops.first), {"shop": "tea"}, "a.py", Selection("a.py", 1, 2))
    players = Players()
    async with perdure.open(shops.address) as store, runtime(store, players, EDITOR) as answering:
        chat = await answering.start(EDITOR, workspace=place, id="e")
        await chat.send("one")
        await chat.send("two", variables={"shop": "{{ctx.x}}"}, selection=Selection("a.py", 3, 3))
        await chat.send("three")
        with pytest.raises(SecretPasted):
            chat.send("no", variables={"shop": "AKIA" + "IOSFODNN7EXAMPLE"})
        await chat.send("four", active_file="b.py", selection=Selection("b.py", 7, 9))
        await chat.send("five", selection=Selection("c.py", 7, 9))
        assert chat.workspace.active_file == "c.py"
        await chat.send("six", active_file="c.py")
        await chat.send("seven", active_file="")
        notes = [
            entry async for entry in chat.session.entries() if entry.kind == WorkspaceChanged.kind
        ]
        assert len(notes) == 5
    told = [request.system for request in players.requests]
    assert told == [
        "Shop tea, file a.py, lines a.py:1-2.",
        "Shop {{ctx.x}}, file a.py, lines a.py:3-3.",
        "Shop {{ctx.x}}, file a.py, lines a.py:3-3.",
        "Shop {{ctx.x}}, file b.py, lines b.py:7-9.",
        "Shop {{ctx.x}}, file c.py, lines c.py:7-9.",
        "Shop {{ctx.x}}, file c.py, lines .",
        "Shop {{ctx.x}}, file , lines .",
    ]
    players = Players()
    async with perdure.open(shops.address) as store, runtime(store, players, EDITOR) as answering:
        chat = await answering.resume("e")
        await chat.send("eight")
        assert players.requests[-1].system == told[-1]


async def test_message_during_another_turn_records_no_workspace_change(tmp_path: Path) -> None:
    shops = Shops(tmp_path)
    hold = Hold()
    players = Players(main=[[hold, *words("ok")]])
    async with perdure.open(shops.address) as store, runtime(store, players) as answering:
        first = await answering.start(AGENT, workspace=shops.place, id="s")
        second = await answering.resume("s")
        turn = first.send("wait")
        await hold.entered.wait()
        other = second.send("now", variables={"shop": "coffee"})
        hold.leave.set()
        await turn
        await other
        assert [request.system for request in players.requests] == [
            f"In {shops.first} for tea.",
            f"In {shops.first} for coffee.",
        ]


async def test_grant_for_one_folder_is_invalid_after_a_move_to_another_folder(
    tmp_path: Path,
) -> None:
    shops = Shops(tmp_path)
    await shops.start()
    call = asks("write_file", json='{"path": "f.txt", "content": "new"}')
    players = Players(main=[act for _ in range(3) for act in (call, words("ok"))])
    async with perdure.open(shops.address) as store, runtime(store, players) as answering:
        chat = await answering.resume("s")
        turn = chat.send("write", while_waiting="raise")
        with pytest.raises(Waiting):
            await turn
        (question,) = await chat.questions()
        assert question.question.grant is not None
        assert str(shops.first) in question.question.grant
        await store.answer(question.id, "always", by="me")
        await turn
        await chat.send("again", while_waiting="raise")
        assert (shops.first / "f.txt").read_text() == "new"
        moved = await answering.resume("s", workspace=Workspace(str(shops.second)))
        with pytest.raises(Waiting):
            await moved.send("there", while_waiting="raise")
        assert (shops.second / "f.txt").read_text() == "in two"


async def test_session_continues_after_its_folder_was_moved_away(tmp_path: Path) -> None:
    shops = Shops(tmp_path)
    await shops.start()
    shops.first.rename(tmp_path / "elsewhere")
    players = reading()
    async with perdure.open(shops.address) as store, runtime(store, players) as answering:
        chat = await answering.resume("s", workspace=Workspace(str(tmp_path / "elsewhere")))
        text, system = await seen(chat, players)
        assert "in one" in text
        assert system == f"In {tmp_path / 'elsewhere'} for tea."
        (found,) = await store.recent(cwd=tmp_path / "elsewhere")
        assert found.id == "s"


def test_blocking_chat_accepts_a_file_and_variables(tmp_path: Path) -> None:
    shops = Shops(tmp_path)
    players = Players()
    with (
        perdure.blocking.open(shops.address) as store,
        perdure.blocking.Runtime(store, [AGENT], models=players) as answering,
    ):
        chat = answering.start(AGENT, workspace=shops.place, id="s")
        chat.send("hi", variables={"shop": "coffee"}).result()
        fork = store.open("s").fork(cwd=shops.second)
        answering.resume(fork.id).send("hi").result()
    assert [request.system for request in players.requests] == [
        f"In {shops.first} for coffee.",
        f"In {shops.second} for coffee.",
    ]


async def test_workspace_change_without_a_folder_keeps_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shops = Shops(tmp_path)
    (shops.first / ".git").mkdir()
    (shops.first / ".git" / "HEAD").write_text("ref: refs/heads/tea\n")
    await shops.start()
    monkeypatch.chdir(shops.second)
    players = reading()
    async with perdure.open(shops.address) as store, runtime(store, players) as answering:
        chat = await answering.resume("s", workspace=Workspace(variables={"shop": "coffee"}))
        text, system = await seen(chat, players)
        assert "in one" in text
        assert system == f"In {shops.first} for coffee."
        assert chat.workspace.git_ref == "tea"
        assert (await chat.session.info()).cwd == str(shops.first)
        here = await answering.resume("s", workspace=Workspace("."))
        assert here.workspace.working_dir == str(shops.second)


@pytest.mark.parametrize("is_other_store", [False, True])
async def test_open_chat_follows_a_folder_change_made_by_another_handle(
    tmp_path: Path, is_other_store: bool
) -> None:
    shops = Shops(tmp_path)
    players = reading(4)
    async with (
        perdure.open(shops.address) as store,
        perdure.open(shops.address) as elsewhere,
        runtime(store, players) as answering,
        runtime(elsewhere, Players()) as other,
    ):
        older = await answering.start(AGENT, workspace=shops.place, id="s")
        assert "in one" in (await seen(older, players))[0]
        mover = other if is_other_store else answering
        await mover.resume("s", workspace=Workspace(shops.second))
        text, system = await seen(older, players)
        assert "in two" in text
        assert system == f"In {shops.second} for tea."
        assert older.workspace.working_dir == str(shops.second)
        await mover.resume("s", workspace=Workspace(shops.first, variables={"size": "big"}))
        await older.send("read", variables={"shop": "coffee"})
        info = await older.session.info()
        assert info.cwd == older.workspace.working_dir == str(shops.first)
        assert older.workspace.variables == {"shop": "coffee", "size": "big"}
        assert players.requests[-1].system == f"In {shops.first} for coffee."


async def test_recovered_turn_runs_in_the_folder_where_it_began(
    tmp_path: Path,
) -> None:
    shops = Shops(tmp_path)
    hold = Hold()
    players = reading()
    async with perdure.open(shops.address) as store, runtime(store, players) as answering:
        older = await answering.start(AGENT, workspace=shops.place, id="s")
        async with runtime(store, Players(main=[[hold]])) as other:
            moved = await other.resume("s", workspace=Workspace(shops.second))
            moved.send("read")
            await hold.entered.wait()
            await other.suspend()
        await older.recover()
        assert players.requests[-1].system == f"In {shops.second} for tea."


async def test_placeholder_of_a_missing_workspace_value_becomes_empty_text(tmp_path: Path) -> None:
    shops = Shops(tmp_path)
    names = "working_dir", "git_ref", "active_file", "selection"
    agent = Agent(
        "a", model="scripted:main", instructions="|".join(f"{{{{ctx.{name}}}}}" for name in names)
    )
    players, lines = Players(), Selection("a.py", 1, 2)
    async with perdure.open("memory:") as store, runtime(store, players, agent) as answering:
        for place in (Workspace(shops.first), Workspace(shops.first, selection=lines)):
            await (await answering.start(agent, workspace=place)).send("hi")
    assert [request.system for request in players.requests] == [
        f"{shops.first}|||",
        f"{shops.first}||a.py|a.py:1-2",
    ]


async def test_selection_outside_the_active_file_is_rejected(tmp_path: Path) -> None:
    shops = Shops(tmp_path)
    lines = Selection("b.py", 3, 9)
    wrong = Workspace(shops.first, {"shop": "tea"}, active_file="a.py", selection=lines)
    players = Players()
    async with perdure.open(shops.address) as store, runtime(store, players) as answering:
        with pytest.raises(WrongArgument, match=r"b\.py:3-9 is not in active_file 'a\.py'"):
            await answering.start(AGENT, workspace=wrong)
        chat = await answering.start(AGENT, workspace=shops.place, id="s")
        for file in ("a.py", ""):
            with pytest.raises(WrongArgument, match="give the file of the selection"):
                chat.send("no", active_file=file, selection=lines)
        with pytest.raises(WrongArgument, match="not in active_file"):
            await answering.resume("s", workspace=wrong)
        for file in ("./b.py", str(shops.first / "b.py")):
            await chat.send("yes", active_file=file, selection=lines)
        assert len(players.requests) == 2


@pytest.mark.parametrize("name", ["working_dir", "git_ref", "active_file", "selection"])
async def test_variable_with_reserved_workspace_name_is_rejected(tmp_path: Path, name: str) -> None:
    shops = Shops(tmp_path)
    variables = {"shop": "tea", name: "elsewhere"}
    wrong = Workspace(shops.first, variables=variables)
    async with perdure.open(shops.address) as store, runtime(store, Players()) as answering:
        with pytest.raises(WrongArgument, match=f"cannot be named '{name}'.*another name"):
            await answering.start(AGENT, workspace=wrong)
        chat = await answering.start(AGENT, workspace=shops.place, id="s")
        with pytest.raises(WrongArgument, match="cannot be named"):
            chat.send("no", variables=variables)
        with pytest.raises(WrongArgument, match="cannot be named"):
            await answering.resume("s", workspace=wrong)


async def test_folder_that_is_missing_or_a_file_is_refused(tmp_path: Path) -> None:
    shops = Shops(tmp_path)
    await shops.start()
    async with perdure.open(shops.address) as store, runtime(store, Players()) as answering:
        session = await store.open("s")
        for folder, why in (
            (tmp_path / "gone", "does not exist"),
            (shops.first / "f.txt", "it is a file"),
        ):
            with pytest.raises(ConfigError, match=f"{why}; name a folder that exists"):
                await session.fork(cwd=folder)
            with pytest.raises(ConfigError, match=why):
                await answering.resume("s", workspace=Workspace(folder))
            with pytest.raises(ConfigError, match=why):
                await answering.start(AGENT, workspace=Workspace(folder, {"shop": "tea"}))
        unnameable = Path("a\0b")  # no folder can have that name
        with pytest.raises(WrongArgument, match="cwd cannot hold a NUL character: remove it"):
            await session.fork(cwd=unnameable)
        with pytest.raises(ConfigError, match="does not exist"):
            await answering.resume("s", workspace=Workspace(unnameable))
        with pytest.raises(ConfigError, match="does not exist"):
            await answering.start(AGENT, workspace=Workspace(unnameable, {"shop": "tea"}))
        assert [info.id for info in await store.recent(scope="all")] == ["s"]


async def test_imported_session_resumed_in_a_folder_is_listed_in_that_folder(
    tmp_path: Path,
) -> None:
    shops = Shops(tmp_path)
    agent = Agent("local", model="scripted:main")
    async with perdure.open("memory:") as store, runtime(store, Players(), agent) as answering:
        await import_source(store.backend, SAMPLE, clock=SystemClock(), random=system_random)
        imported = (await (await store.open(SAMPLE_ID)).info()).cwd
        assert imported != str(shops.second)
        chat = await answering.resume(SAMPLE_ID, agent, workspace=Workspace(shops.second))
        assert chat.workspace.working_dir == str(shops.second)
        assert (await chat.session.info()).cwd == str(shops.second)
        (found,) = await store.recent(cwd=shops.second)
        assert found.id == SAMPLE_ID


async def test_granting_permissions_to_a_fork_keeps_its_folder(tmp_path: Path) -> None:
    shops = Shops(tmp_path)
    agent = Agent("local", model="scripted:main")
    async with perdure.open("memory:") as store, runtime(store, Players(), agent) as answering:
        await import_source(store.backend, SAMPLE, clock=SystemClock(), random=system_random)
        fork = await (await store.open(SAMPLE_ID)).fork(cwd=shops.second)
        await answering.grant(fork.id, agent, by="ana")
        assert (await answering.resume(fork.id)).workspace.working_dir == str(shops.second)


def test_workspace_accepts_a_path_object(tmp_path: Path) -> None:
    assert Workspace(tmp_path) == Workspace(str(tmp_path))
    assert Workspace(None) == Workspace()
    for wrong in (3, b"bytes", ["a"]):
        with pytest.raises(WrongArgument, match="working_dir"):
            Workspace(wrong)  # pyright: ignore[reportArgumentType] - what is refused
