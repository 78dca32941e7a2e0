"""MCP servers that are programs: real ones, over their standard input and output."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.client.agents.runtime import Runtime
from perdure.client.agents.turn import Turn
from perdure.errors import ConfigError, McpUnavailable
from perdure.events.types import Event
from perdure.models.scenario import CallTools, Reply, ScriptedCall
from perdure.secrets.vault import Vault
from perdure.session.codec import body_of
from perdure.session.ledger import ToolFinished, ToolStarted, UnknownPolicy
from perdure.session.messages import ToolResultPart
from perdure.session.notes import Question, SessionStarted
from perdure.tools.mcp.connection import Connection
from perdure.tools.mcp.servers import McpServer
from perdure.tools.permissions import ApprovalMode, Permissions
from tests.fakes.chats import MODEL, Stage, says
from tests.fakes.mcp_servers import PROGRAM, is_alive, light, local, pids, until
from tests.fakes.samples import ALL_ONLY

HOLDER = Path(__file__).parents[1] / "children" / "mcp_holder.py"


@pytest.fixture
def deeds(tmp_path: Path) -> Path:
    return tmp_path / "deeds"


def call(tool: str, json: str = "{}") -> Reply:
    return says(CallTools((ScriptedCall(f"mcp_fake_{tool}", json, id=f"c-{tool}"),)))


def agent(*servers: McpServer | str, approval: ApprovalMode = "auto", **settings: Any) -> Agent:
    permissions = Permissions(approval=approval)
    return Agent("helper", model=MODEL, mcp_servers=servers, permissions=permissions, **settings)


async def results(chat: Chat) -> list[ToolResultPart]:
    messages = await chat.session.messages()
    return [part for m in messages for part in m.parts if isinstance(part, ToolResultPart)]


async def bodies(chat: Chat, kind: type) -> list[Any]:
    return [b async for e in chat.session.entries() if isinstance(b := body_of(e), kind)]


async def test_mcp_call_reaches_the_server_and_the_answer_reaches_the_model(deeds: Path) -> None:
    stage = Stage(call("add", '{"a": 2, "b": 3}'), call("show"), call("fail"), says("done"))
    me = agent(local(deeds))
    async with stage.runtime(me) as runtime:
        chat = await runtime.start(me)
        assert (await chat.send("go")).text == "done"
        added, shown, failed = await results(chat)
    assert added.text.endswith("\n5")
    assert added.text.startswith("[from outside")
    assert "[audio audio/wav 100 bytes]" in shown.text
    assert "and words" in shown.text
    (picture,) = shown.media
    content = await stage.memory.blob(picture.handle.removeprefix("media://"))
    assert content.startswith(b"\x89PNG")
    assert failed.is_error
    assert failed.text.startswith("[from outside")
    assert len(pids(deeds)) == 1
    assert not is_alive(pids(deeds)[0]), "the program ends with the runtime"


@pytest.mark.all_only
async def test_omitted_tools_are_recorded_in_session_with_reason(deeds: Path) -> None:
    me = agent(local(deeds))
    async with Stage().runtime(me) as runtime:
        chat = await runtime.start(me)
        (started,) = await bodies(chat, SessionStarted)
    (report,) = started.agent["mcp_servers"]
    assert report["name"] == "fake"
    assert "mcp_fake_odd_name_here" in report["tools"]
    left_out = {each["tool"]: each["reason"] for each in report["left_out"]}
    assert "another tool" in left_out["odd_name_here"]
    assert "schema" in left_out["shapeless"]


@pytest.mark.all_only
@pytest.mark.parametrize(
    ("policy", "attempts"), [("never", 1), ("ask", 1), pytest.param("retry", 3, marks=ALL_ONLY)]
)
async def test_policy_decides_whether_a_call_to_a_killed_server_is_repeated(
    deeds: Path, policy: UnknownPolicy, attempts: int
) -> None:
    stage = Stage(call("hang"), call("add", '{"a": 1, "b": 1}'), says("done"))
    me = agent(local(deeds, on_unknown=policy))
    async with stage.runtime(me) as runtime:
        chat = await runtime.start(me)
        turn = chat.send("go")
        for attempt in range(1, attempts + 1):
            await until(lambda n=attempt: _hangs(deeds) == n)
            os.kill(pids(deeds)[-1], signal.SIGKILL)
        if policy == "ask":
            await chat.session.answer(await asked(turn), "skip", by="tester")
        assert (await turn).text == "done"
        tried = [t for t in await bodies(chat, ToolStarted) if t.tool == "mcp_fake_hang"]
        ended = [t for t in await bodies(chat, ToolFinished) if t.tool == "mcp_fake_hang"]
        hung, added = await results(chat)
    assert [t.attempt for t in tried] == list(range(1, attempts + 1))
    assert len({t.idempotency_key for t in tried}) == 1
    assert {t.outcome for t in ended} == {"unknown"}
    assert "may or may not have taken effect" in hung.text
    assert added.text.endswith("\n2"), "the server is started anew at the next use"
    assert not any(is_alive(pid) for pid in pids(deeds))


def _hangs(deeds: Path) -> int:
    """Count the calls that hang; each writes the process id that its program wrote at the start."""
    found = pids(deeds)
    return len(found) - len(set(found))


def has_sent(deeds: Path) -> bool:
    """Whether the server did anything except start."""
    return "sent" in deeds.read_text()


async def asked(turn: Turn) -> str:
    """Return the id of the question whose answer the turn waits for."""
    async for event in turn:
        if isinstance(event, Event) and event.type == "inbox:question":
            return str(event.payload["entryId"])
    raise AssertionError("nothing was asked")


async def test_invalid_arguments_never_reach_the_server(deeds: Path) -> None:
    stage = Stage(call("send", '{"to": 3}'), call("send", '{"to": "a", "cc": "b"}'), says("sorry"))
    me = agent(light(deeds, "fake", "several"))
    async with stage.runtime(me) as runtime:
        chat = await runtime.start(me)
        await chat.send("go")
        first, second = await results(chat)
    assert "to: expected string" in first.text
    assert "cc: there is no such parameter" in second.text
    assert not has_sent(deeds)


async def test_mcp_call_needs_approval_of_its_exact_arguments(deeds: Path) -> None:
    stage = Stage(call("send", '{"to": "ann"}'), says("done"))
    me = agent(light(deeds, "fake", "several"), approval="ask")
    async with stage.runtime(me) as runtime:
        chat = await runtime.start(me)
        turn = chat.send("go")
        waiting = await asked(turn)
        (question,) = await bodies(chat, Question)
        assert 'fake: send {"to":"ann"}' in question.text
        assert question.grant == 'mcp_fake_send fake: send {"to":"ann"}'
        assert not has_sent(deeds)
        await chat.session.answer(waiting, "deny", by="tester")
        await turn
    assert not has_sent(deeds)


@pytest.mark.all_only
async def test_read_only_annotation_has_effect_only_from_a_trusted_server(deeds: Path) -> None:
    for trusts in (False, True):
        stage = Stage(call("add", '{"a": 1, "b": 1}'), says("done"))
        me = agent(local(deeds, trusts_annotations=trusts), approval="plan")
        async with stage.runtime(me) as runtime:
            chat = await runtime.start(me)
            await chat.send("go")
            (result,) = await results(chat)
        assert result.is_error is not trusts


@pytest.mark.all_only
async def test_tools_are_restricted_by_the_server_the_agent_and_the_session(deeds: Path) -> None:
    me = agent(local(deeds, tools_allowlist=("add", "send")), tools=["read_file"])
    async with Stage().runtime(me) as runtime:
        whole = await runtime.start(me)
        assert whole.agent.registry.names == ("read_file", "mcp_fake_add", "mcp_fake_send")
        less = await runtime.start(me, tools=["mcp_fake_add"])
        assert less.agent.registry.names == ("mcp_fake_add",)
        with pytest.raises(ConfigError, match="mcp_fake_hang"):
            await runtime.start(me, tools=["mcp_fake_hang"])


async def test_server_is_not_started_if_its_tools_are_not_used(deeds: Path) -> None:
    me = agent(local(deeds), tools=["read_file"])
    async with Stage().runtime(me) as runtime:
        await runtime.start(me, tools=["read_file"])
    assert pids(deeds) == []


@pytest.mark.all_only
async def test_sessions_of_one_runtime_share_an_mcp_server_process(
    deeds: Path,
) -> None:
    stage = Stage(says("hello"), call("add", '{"a": 4, "b": 4}'), says("done"))
    me = agent("fake")
    known = [local(deeds)]
    async with Runtime(stage.store, [me], models=stage.models, mcp_servers=known) as runtime:
        chat = await runtime.start("helper", id="s")
        await runtime.start("helper")
        await chat.send("hi")
        assert len(pids(deeds)) == 1
    async with Runtime(stage.store, [me], models=stage.models, mcp_servers=known) as runtime:
        chat = await runtime.resume("s")
        await chat.send("add")
        (added,) = await results(chat)
    assert added.text.endswith("\n8")


async def test_unknown_server_name_is_an_error_with_the_known_names(deeds: Path) -> None:
    stage, me = Stage(), agent("git")
    async with Runtime(stage.store, [me], models=stage.models, mcp_servers=[local(deeds)]) as here:
        with pytest.raises(ConfigError, match="no MCP server 'git' here; there are: fake"):
            await here.start(me)


async def test_error_with_the_output_of_a_server_shows_no_part_of_a_secret(tmp_path: Path) -> None:
    secret = "orchid-4711-harbour"
    code = "import os, sys; sys.exit(os.environ['TOKEN'] + ' word' * 98)"
    server = McpServer(
        name="fake",
        command=sys.executable,
        args=("-S", "-c", code),
        env={"TOKEN": "{{secrets.shop}}"},
    )
    connection = Connection(server, Vault({"PERDURE_SECRET_SHOP": secret}), tmp_path)
    with pytest.raises(McpUnavailable) as raised:
        await connection.tools()
    assert " word" * 98 in str(raised.value)
    assert "harbour" not in str(raised.value)


@pytest.mark.all_only
@pytest.mark.parametrize(
    ("command", "args", "patience_s", "told"),
    [
        ("no-such-program-here", (), 60, "no such program"),
        (sys.executable, (PROGRAM, "--die-at-start"), 60, "settings.toml"),
        (sys.executable, ("-c", "{}['shop']"), 60, r"\(it said: KeyError: 'shop'\)"),
        (sys.executable, ("-c", "print('hello')"), 60, "cannot be used"),
        (sys.executable, ("-c", "import time; time.sleep(600)"), 0.5, "not ready within 0.5 s"),
    ],
)
async def test_chat_with_an_unusable_mcp_server_cannot_start(
    command: str, args: tuple[str, ...], patience_s: float, told: str
) -> None:
    bad = McpServer(name="bad", command=command, args=args, connect_timeout_s=patience_s)
    stage, me = Stage(), agent(bad)
    async with stage.runtime(me) as runtime:
        with pytest.raises(McpUnavailable, match=told):
            await runtime.start(me, id="s")
    assert [info.id for info in await stage.store.recent()] == []


async def test_server_gets_a_minimal_environment_and_its_secrets_are_masked(
    deeds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_SECRET_GATE", "open-sesame-1234")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-" + "x" * 40)
    stage = Stage(call("environment"), says("done"))
    me = agent(light(deeds, "fake", "several", env={"GATE_TOKEN": "{{secrets.GATE}}"}))
    async with stage.runtime(me) as runtime:
        chat = await runtime.start(me)
        await chat.send("go")
        (told,) = await results(chat)
    assert "GATE_TOKEN=[secret:GATE]" in told.text
    assert "open-sesame" not in told.text
    assert "OPENAI" not in told.text
    assert "PERDURE_SECRET" not in told.text


@pytest.mark.all_only
async def test_long_answer_is_cut_for_the_model_and_stored_whole(deeds: Path) -> None:
    stage = Stage(call("long"), says("done"))
    me = agent(local(deeds))
    async with stage.runtime(me) as runtime:
        chat = await runtime.start(me)
        await chat.send("go")
        (told,) = await results(chat)
        (finished,) = await bodies(chat, ToolFinished)
    assert len(told.text) < 60_000
    whole = await stage.memory.blob(finished.whole.removeprefix("media://"))
    assert len(whole) > 200_000


@pytest.mark.all_only
async def test_mcp_server_process_ends_if_the_program_raises_an_exception(deeds: Path) -> None:
    stage, me = Stage(call("hang")), agent(local(deeds))

    async def failing() -> None:
        async with stage.runtime(me) as runtime:
            chat = await runtime.start(me)
            chat.send("go")
            await until(lambda: _hangs(deeds) == 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await failing()
    assert not any(is_alive(pid) for pid in pids(deeds))


@pytest.mark.all_only
async def test_server_is_usable_after_a_call_was_aborted(deeds: Path) -> None:
    stage = Stage(call("hang"), call("add", '{"a": 1, "b": 2}'), says("done"))
    me = agent(local(deeds))
    async with stage.runtime(me) as runtime:
        chat = await runtime.start(me)
        turn = chat.send("go")
        await until(lambda: _hangs(deeds) == 1)
        turn.abort()
        await turn
        await chat.send("again")
        assert (await results(chat))[-1].text.endswith("\n3")


@pytest.mark.all_only
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=ALL_ONLY)])
async def test_server_ends_with_the_process_that_started_it(deeds: Path, number: int) -> None:
    root = HOLDER.parents[3]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(HOLDER), str(deeds)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    (pid,) = pids(deeds)
    assert is_alive(pid)
    process.send_signal(number)
    await process.wait()
    await until(lambda: not is_alive(pid))
