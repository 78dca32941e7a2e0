"""The acceptance scenarios of Relavium about refused, hidden or separated data, by number."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import perdure
from perdure.errors import CorruptLog
from perdure.events.projection import events_of, wire
from perdure.models.protocol import StreamEnd, ToolCallDelta
from perdure.session.codec import body_of
from perdure.session.ids import StreamId
from perdure.session.ledger import ToolFinished
from perdure.session.messages import user
from perdure.stores.protocol import Commit, Write
from perdure.tools.builtin.catalogue import BUILTIN
from perdure.tools.permission_check import effective_args
from perdure.tools.permissions import Permissions
from perdure.tools.spec import ToolCall
from tests.fakes.players import USED, Act, Theatre, words
from tests.fakes.raw_database import raw_database

SECRET = "sk-ant-" + "a1b2c3d4" * 5


def asks_with(name: str, **args: object) -> Act:
    """An answer that calls the tool `name` with `args`."""
    return (ToolCallDelta(0, "c", name, json.dumps(args)), StreamEnd("tool_calls", USED))


async def test_failing_or_closed_observer_does_not_affect_turns_or_other_observers() -> None:
    # Scenario 26 of the specification.
    theatre = Theatre(main=[words("hello")])
    chat = await theatre.chat()
    seen: list[str] = []

    def throws(event: object) -> None:
        raise RuntimeError("an observer's own fault")

    theatre.store.bus.observe(throws)
    theatre.store.bus.observe(lambda event: seen.append(event.text))
    left = aiter(chat.session.watch())
    turn = chat.send("hi")
    await anext(left)
    del left
    assert (await turn).text == "hello"
    assert seen == ["hello"]


async def test_allowed_command_git_does_not_allow_git_push(tmp_path: Path) -> None:
    # Scenario 27 of the specification.
    theatre = Theatre(main=[asks_with("run_command", command="git push"), words("well")])
    allowed = Permissions(allowed_commands=("git",), approval="ask")
    chat = await theatre.chat(tools=["run_command"], permissions=allowed)
    await chat.send("push it")
    types = await theatre.types()
    assert "inbox:question" not in types
    assert "agent:approval_requested" not in types
    assert "agent:tool_call" not in types
    (finished,) = await theatre.bodies(ToolFinished)
    assert finished.outcome == "refused"


@pytest.mark.parametrize(
    ("tool", "wanted", "forged"),
    [
        (
            "run_command",
            {"command": "env"},
            {"env": {"LD_PRELOAD": "x"}, "cwd": "/", "shell": True},
        ),
        ("web_search", {"query": "x"}, {"endpoint": "http://10.0.0.1/", "credentialRef": "k"}),
        ("http_request", {"url": "https://a.test"}, {"credential": "k", "proxy": "http://b.test"}),
    ],
)
def test_tool_arguments_that_the_model_must_not_set_are_dropped(
    tool: str, wanted: dict[str, Any], forged: dict[str, Any]
) -> None:
    # Scenario 28 of the specification.
    spec = BUILTIN[tool]
    assert spec.arguments is not None
    assert spec.arguments(effective_args(spec, {**wanted, **forged})) == wanted


async def test_git_tool_call_with_extra_flags_does_not_run() -> None:
    # Scenario 28 of the specification.
    forged = asks_with("git_status", command="status", flags=["--exec-path=/tmp"], args=["-c", "x"])
    theatre = Theatre(main=[forged, words("well")])
    chat = await theatre.chat(tools=["git_status"])
    await chat.send("what has changed?")
    (finished,) = await theatre.bodies(ToolFinished)
    assert (finished.succeeded, finished.error_code) == (False, "invalid_arguments")


async def test_call_is_denied_if_its_guard_hook_raises_an_error() -> None:
    # Scenario 29 of the specification.
    ran: list[str] = []

    async def strike() -> str:
        ran.append("struck")
        return "struck"

    theatre = Theatre(main=[asks_with("strike"), words("I may not")])
    chat = await theatre.chat(tools=[perdure.tool(effect="write")(strike)])
    asked: list[ToolCall] = []

    def guard(point: Any) -> None:
        asked.append(point.call)
        raise RuntimeError("the guard itself is broken")

    theatre.store.hooks.on("tool_call", guard)
    assert (await chat.send("strike")).text == "I may not"
    assert (ran, len(asked)) == ([], 1)
    (finished,) = await theatre.bodies(ToolFinished)
    assert (finished.outcome, finished.error_code) == ("refused", "tool_denied")


async def test_secret_is_masked_in_events_but_passed_to_the_tool() -> None:
    # Scenario 32 of the specification.
    given: list[str] = []

    async def post(header: str, body: str) -> str:
        given.extend((header, body))
        return "sent"

    call = asks_with("post", header=f"Bearer {SECRET}", body=f"key={SECRET}")
    theatre = Theatre(main=[call, words("done")])
    chat = await theatre.chat(tools=[perdure.tool(effect="external")(post)])
    await chat.send("post it")
    assert given == [f"Bearer {SECRET}", f"key={SECRET}"]
    told = [
        wire(event)
        for entry in await theatre.entries()
        for event in events_of(entry)
        if event.type in ("agent:tool_call", "agent:tool_result")
    ]
    assert len(told) == 2
    assert SECRET not in json.dumps(told)


async def test_entry_with_embedded_media_bytes_is_rejected_on_read(tmp_path: Path) -> None:
    # Scenario 33 of the specification.
    file = tmp_path / "s.db"
    async with perdure.open(f"sqlite:///{file}") as store:
        await (await store.create(id="s")).append(user("a picture of a cat"))
    inline = {"type": "media", "mime_type": "image/png"}
    source = {"kind": "base64", "data": "iVBORw0KGgo=" * 4}
    body = msgspec.json.encode({"role": "user", "parts": [{**inline, "source": source}]})
    with raw_database(file) as db:
        db.execute("UPDATE entry SET body = ? WHERE seq = 0", (body,))
    async with perdure.open(f"sqlite:///{file}") as store:
        session = await store.open("s")
        (entry,) = [entry async for entry in session.entries()]
        with pytest.raises(CorruptLog, match="media as bytes"):
            body_of(entry)
        context = await session.context()
        assert (context.messages, context.skipped) == ((), 1)
        assert not (await store.verify()).is_ok


async def test_second_entry_with_the_same_seq_is_rejected(
    tmp_path: Path,
) -> None:
    # Scenario 36 of the specification.
    file = tmp_path / "s.db"
    address = f"sqlite:///{file}"
    async with perdure.open(address) as store, perdure.open(address) as other:
        session = await store.create(id="s")
        await session.append(user("first"))
        with raw_database(file) as db:
            again = "INSERT INTO entry (stream, seq, kind, v, at, digest, body)"
            with pytest.raises(apsw.ConstraintError):
                db.execute(f"{again} SELECT stream, seq, kind, v, at, digest, body FROM entry")

        async def writes() -> None:
            for n in range(40):
                await session.append_many([user(f"{n} of a pair"), user(f"{n}, the other")])

        writing = asyncio.create_task(writes())
        reads = 0
        while not writing.done():
            entries = await other.backend.entries(StreamId("s"))
            assert len(entries) % 2 == 1, "half of a commit was read"
            assert [entry.seq for entry in entries] == list(range(len(entries)))
            reads += 1
        await writing
        assert reads > 1
        at = store.outside.clock.now_ms()
        stale = Write(stream=StreamId("s"), entries=(), expected_head=0)
        with pytest.raises(perdure.errors.HeadConflict):
            await store.backend.commit(Commit(writes=(stale,), at=at))
