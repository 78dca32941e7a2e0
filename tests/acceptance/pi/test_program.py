"""The command ``pi`` continues sessions of perdure, and perdure continues sessions of ``pi``."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import assistant, user
from perdure.client.store import Store
from perdure.interop.exports import export_session
from perdure.interop.imports import import_source
from perdure.session.codec import body_of
from perdure.session.ids import EntryId
from perdure.session.messages import Message
from tests.fakes.model_server import ModelServer
from tests.fakes.openai_server import ServerAnswer, answering, openai_server
from tests.fakes.real_pi import RealPi
from tests.fakes.session_files import file_of

PERDURE = Path(sys.executable).with_name("perdure")
LONG = "The tide table that lost an hour, and how the harbour of Ærøskøbing found it again " * 4
METADATA = {"ticket": "T-1", "tags": ["a", "é"], "note": "x" * 900}


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with openai_server() as server:
        yield server


class World:
    """A project of a person who uses pi, and the folder of pi's sessions."""

    def __init__(self, pi: RealPi, server: ModelServer, folder: Path) -> None:
        self.pi = pi
        self.server = server
        self.home = folder
        self.project = folder / "projects" / "tidepool-backend"
        self.project.mkdir(parents=True)
        name = str(self.project).strip("/").replace("/", "-")
        self.sessions = folder / ".pi" / "agent" / "sessions" / f"--{name}--"
        self.sessions.mkdir(parents=True)

    @property
    def address(self) -> str:
        return f"jsonl:///{self.sessions}?dialect=pi"

    async def run(self, *words: str, answer: str = "An hour.") -> list[dict[str, Any]]:
        """Run ``pi`` once; return the messages that the model was sent."""
        self.server.will(answering(ServerAnswer(text=answer)))
        before = len(self.server.requests)
        model = ("--provider", "local", "--model", "tides", "--no-tools")
        out = await asyncio.to_thread(
            self.pi.run, *model, *words, home=self.home, cwd=self.project, address=self.server.url
        )
        assert answer in out
        (request,) = self.server.requests[before:]
        return [each for each in request.messages if each["role"] != "system"]


@pytest.fixture
def world(pi: RealPi, server: ModelServer, tmp_path: Path) -> World:
    return World(pi, server, tmp_path / "home")


def words(messages: list[dict[str, Any]]) -> list[str]:
    """The text of each message of a request."""
    texts: list[str] = []
    for each in messages:
        content: str | list[dict[str, Any]] = each["content"]
        parts = content if isinstance(content, list) else [{"text": content}]
        texts.append("".join(str(part.get("text", "")) for part in parts))
    return texts


@pytest.mark.all_only
async def test_pi_continues_session_with_long_title_and_metadata(world: World) -> None:
    async with perdure.open(world.address) as store:
        session = await store.create(title=LONG, cwd=world.project, metadata=METADATA)
        first = await session.append(user("How long is the night?"), assistant("Eight hours."))
    sent = await world.run("-c", "-p", "And the day?")
    assert words(sent) == ["How long is the night?", "Eight hours.", "And the day?"]
    (path,) = world.sessions.glob("*.jsonl")
    assert path == file_of(world.sessions, session.id)
    async with perdure.open(world.address) as store:
        session = await store.open(session.id)
        texts = [message.text for message in await session.messages()]
        assert texts[-2:] == ["And the day?", "An hour."]
        fork = await session.fork(at=first[1].id)
        await fork.append(user("On another branch?"), assistant("Yes."))
    sent = await world.run("-c", "-p", "Go on")
    assert words(sent)[-3:] == ["On another branch?", "Yes.", "Go on"]


@pytest.mark.all_only
async def test_tree_in_pi_shows_the_entries_of_perdure(pi: RealPi, tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    async with perdure.open(f"jsonl:///{folder}?dialect=pi") as store:
        session = await store.create(title=LONG, cwd=tmp_path, metadata=METADATA)
        first = await session.append(user("How long is the night?"), assistant("Eight hours."))
        await session.label(first[0].id, "the night")
        await session.append(user("And the day?"), assistant("Sixteen hours."))
        await session.branch_with_summary(first[1].id, "The day was asked about.")
        await session.append(user("And the week?"))
    path = file_of(folder, session.id)
    before = path.read_bytes()
    screen = await asyncio.to_thread(pi.show_tree, path, tmp_path)
    rows = (
        *("[the night] user: How long is the night?", "assistant: Eight hours."),
        *("[branch summary]: The day was asked about.", "user: And the week?"),
        *("user: And the day?", "assistant: Sixteen hours."),
    )
    places = [screen.find(row) for row in rows]
    assert -1 not in places, screen
    assert places == sorted(places), screen
    assert "perdure" not in screen
    assert path.read_bytes().startswith(before)  # pi notes the thinking level it starts with


@pytest.mark.all_only
async def test_chat_and_pi_answer_alternately_in_one_file(world: World) -> None:
    first = await world.run("-p", "First question", answer="First answer")
    assert words(first) == ["First question"]
    environment = {"HOME": str(world.home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    (path,) = world.sessions.glob("*.jsonl")
    by_pi = path.read_bytes()
    chat = ("chat", "--continue", "-p", "Second question", "-m", "scripted:echo")
    done = await asyncio.to_thread(
        subprocess.run,
        [PERDURE, *chat, "--store", world.address],
        env=environment,
        cwd=world.project,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert path.read_bytes().startswith(by_pi)
    sent = await world.run("-c", "-p", "Third question", answer="Third answer")
    assert words(sent)[:3] == ["First question", "First answer", "Second question"]
    assert words(sent)[-1] == "Third question"
    assert list(world.sessions.glob("*.jsonl")) == [path]


@pytest.mark.all_only
async def test_pi_can_list_open_and_branch_an_export(world: World) -> None:
    async with perdure.open(f"sqlite:///{world.home}/store.db") as store:
        session = await store.create(title=LONG, cwd=world.project, metadata=METADATA)
        first = await session.append(user("one"))
        await session.append(assistant("two"), user("three"), assistant("four"))
        path = world.sessions / "2026-01-01T00-00-00-000Z_export.jsonl"
        path.write_bytes((await export_session(store.backend, session.id, "pi")).content)
        (listed,) = world.pi.ask("list", cwd=world.project, folder=world.sessions)["sessions"]
        assert (listed["id"], listed["name"]) == (session.id, LONG.strip())
        assert (listed["messageCount"], listed["firstMessage"]) == (4, "one")
        recent = world.pi.ask("recent", cwd=world.project, folder=world.sessions)
        assert recent["file"] == str(path)
        messages = [entry["id"] for entry in recent["entries"] if entry["type"] == "message"]
        exported = path.read_bytes()
        sent = await world.run("--session", str(path), "-p", "five", answer="six")
        assert words(sent) == ["one", "two", "three", "four", "five"]
        assert path.read_bytes().startswith(exported)
        await require_added(store, session.id, path, messages=2)
        assert await texts_of(store, session.id) == ["one", "two", "three", "four", "five", "six"]
        world.pi.ask("say", path=path, texts=["seven", "eight"], at=messages[1])
        sent = await world.run("--session", str(path), "-p", "nine", answer="ten")
        assert words(sent) == ["one", "two", "seven", "eight", "nine"]
        await require_added(store, session.id, path, messages=4)
        after = ["one", "two", "seven", "eight", "nine", "ten"]
        assert await texts_of(store, session.id) == after
        await (await store.open(session.id)).branch(first.id)
        world.pi.ask("say", path=path, texts=["eleven", "twelve"])
        await require_added(store, session.id, path, messages=2)
        assert await texts_of(store, session.id) == ["one"]  # where perdure moved it
        newest = await (await store.open(session.id)).find(world.pi.look(path)["leaf"])
        assert await texts_of(store, session.id, newest) == [*after, "eleven", "twelve"]
        await require_added(store, session.id, path, messages=0)


async def require_added(store: Store, session: str, path: Path, messages: int) -> None:
    """Import `path`; require that this adds `messages` to `session` without a warning."""
    clock, chance = store.outside.clock, store.outside.random
    report = await import_source(store.backend, path, clock=clock, random=chance)
    assert (report.session, report.messages, report.warnings) == (session, messages, ())


async def texts_of(store: Store, session: str, leaf: EntryId | None = None) -> list[str]:
    path = await (await store.open(session)).path(leaf)
    bodies = [body_of(entry) for entry in path]
    return [body.text for body in bodies if isinstance(body, Message)]
