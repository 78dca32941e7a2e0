"""The context of any model call of the log, compared with the real requests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure import CompactionSettings, assistant, tool_call, user
from perdure.client.conversation import contexts
from perdure.events.wire import wire
from perdure.interop.formats import markdown
from perdure.testing import ScriptedModel
from tests.fakes.served import Served, served


@perdure.tool(effect="read")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@perdure.tool(effect="external", needs_approval=True)
def write(text: str) -> str:
    """Write."""
    return text


ANSWERS = [assistant(tool_call("c1", "add", {"a": 1, "b": 2})), "three", "four", "five"]


async def test_context_request_for_two_messages_returns_the_last_two(tmp_path: Path) -> None:
    agent = perdure.Agent("desk", model="scripted:desk", tools=[add])
    async with served(tmp_path, ANSWERS, agents=[agent]) as server:
        session = await server.said("1 and 2?")
        url = f"/v1/sessions/{session}/context"
        handle = await server.store.open(session)
        calls = [e.seq async for e in handle.entries(kind="model_called")]
        for query in ({}, {"call": calls[-1]}):
            whole = (await server.http.get(url, params=query)).json()
            newest = (await server.http.get(url, params={**query, "last": 2})).json()
            assert newest["messages"] == whole["messages"][-2:]
            assert newest["earlier"] == len(whole["messages"]) - 2
            assert (whole["earlier"], newest["tokens"]) == (0, whole["tokens"])


async def test_context_of_each_call_equals_its_request(tmp_path: Path) -> None:
    agent = perdure.Agent(
        "desk",
        model="scripted:desk",
        instructions="Add up.",
        tools=[add],
        temperature=0.5,
        max_output_tokens=500,
    )
    model = ScriptedModel(ANSWERS)
    async with served(tmp_path, agents=[agent], models=model) as server:
        session = await server.said("1 and 2?")
        handle = await server.store.open(session)
        first = (await handle.path(kind="message"))[0]
        await server.said("and 1 more?", session)
        await (await server.store.open(session)).branch(first.id)
        await server.said("on another branch", session)
        await (await server.store.open(session)).pin(first.id)
        seqs = await calls_of(server, session)
        assert len(seqs) == len(model.requests) == 5
        for seq, request in zip(seqs, model.requests, strict=True):
            shown = await context(server, session, seq)
            wanted = [(each.role, text_of(wire(each))) for each in request.messages]
            assert [(each["role"], text_of(each)) for each in shown["messages"]] == wanted
            assert shown["system"] == request.system == "Add up."
            (declared,) = request.tools
            assert shown["tools"] == [
                {"isLoaded": True}
                | {name: getattr(declared, name) for name in ("name", "description", "parameters")}
            ]
            assert shown["options"] == {
                "temperature": request.temperature,
                "maxOutputTokens": request.max_output_tokens,
                "outputSchema": None,
            }
            assert shown["reported"]["output"] > 0
        following = (await server.http.get(f"/v1/sessions/{session}/context")).json()
        last = await context(server, session, seqs[-1])
        for name in ("system", "tools", "options"):
            assert following[name] == last[name]


async def test_next_context_of_a_session_without_agent_has_no_instructions(tmp_path: Path) -> None:
    agent = perdure.Agent("desk", model="scripted:echo", instructions="Add up.", tools=[add])
    file = tmp_path / "received.jsonl"
    async with (
        perdure.open("memory:") as other,
        perdure.Runtime(other, [agent]) as runtime,
    ):
        chat = await runtime.start(agent)
        await chat.send("1 and 2?")
        await chat.session.export(path=file)
    async with served(tmp_path, agents=[agent]) as server:
        await server.store.import_files([file])
        new = (await server.store.create()).id
        for session in (new, chat.id):
            shown = (await server.http.get(f"/v1/sessions/{session}/context")).json()
            assert (shown["system"], shown["tools"], shown["options"]) == (None, [], None)
            assert (shown["messages"] == []) == (session == new)


class Sum(msgspec.Struct):
    """The type of an agent's answers."""

    total: int
    why: str = ""


async def test_context_of_call_includes_its_workspace_and_output_type(
    tmp_path: Path,
) -> None:
    @perdure.tool(effect="read")
    def look(place: str) -> str:
        """Look in {{ctx.working_dir}}."""
        return place

    agent = perdure.Agent(
        "desk",
        model="scripted:desk",
        instructions="Work in {{ctx.working_dir}}.",
        tools=[look, "invoke_agent"],
        output=Sum,
    )
    model = ScriptedModel(['{"total": 1}', '{"total": 2}'])
    async with served(tmp_path, agents=[agent], models=model) as server:
        one, two = tmp_path / "one", tmp_path / "two"
        for folder in (one, two):
            folder.mkdir()
        chat = await server.runtime.start("desk", workspace=perdure.Workspace(str(one)))
        await chat.send("first")
        chat = await server.runtime.resume(chat.id, workspace=perdure.Workspace(str(two)))
        await chat.send("second")
        shown: dict[str, Any] = {}
        for seq, request in zip(await calls_of(server, chat.id), model.requests, strict=True):
            shown = await context(server, chat.id, seq)
            assert shown["system"] == request.system
            assert shown["options"]["outputSchema"] == request.output_schema
            assert [each["description"] for each in shown["tools"]] == [
                each.description for each in request.tools
            ]
            assert [each["parameters"] for each in shown["tools"]] == [
                each.parameters for each in request.tools
            ]
        assert str(two) in shown["tools"][0]["description"]


async def test_changed_tool_is_listed_without_schema(tmp_path: Path) -> None:
    @perdure.tool(name="add", effect="read")
    def add_texts(a: str) -> str:
        """Add texts."""
        return a

    address = f"sqlite:///{tmp_path / 'a.db'}"
    agent = perdure.Agent("desk", model="scripted:desk", tools=[add])
    async with served(tmp_path, ["one"], agents=[agent], address=address) as server:
        session = await server.said("hi")
    changed = perdure.Agent("desk", model="scripted:desk", tools=[add_texts])
    other = perdure.Agent("other", model="scripted:desk", tools=[add])
    for today in (changed, other):
        async with served(tmp_path, agents=[today], address=address) as server:
            shown = await context(server, session, (await calls_of(server, session))[0])
            assert shown["tools"] == [
                {"name": "add", "isLoaded": False, "description": None, "parameters": None}
            ]


async def test_context_of_a_trimmed_request_has_only_the_sent_messages(tmp_path: Path) -> None:
    compaction = CompactionSettings(max_messages=3)
    agent = perdure.Agent("desk", model="scripted:desk", compaction=compaction)
    model = ScriptedModel(["one", "two", "three"])
    async with served(tmp_path, agents=[agent], models=model) as server:
        session = await server.said("first")
        for text in ("second", "third"):
            await server.said(text, session)
        shown = await context(server, session, (await calls_of(server, session))[-1])
        sent = [[each.text] for each in model.requests[-1].messages]
        assert [text_of(each) for each in shown["messages"]] == sent
        assert (shown["trimmed"]["limit"], shown["dropped"] > 0) == ("max_messages", True)


async def test_context_over_budget_shows_overflow_and_omitted_messages(tmp_path: Path) -> None:
    async with served(tmp_path, ["one", "two"]) as server:
        session = await server.said("first " * 50)
        url = f"/v1/sessions/{session}/context"
        await server.said("second " * 50, session)
        whole = (await server.http.get(url, params={"budget": 100_000})).json()
        assert (whole["budget"], whole["overflow"], whole["dropped"]) == (100_000, None, 0)
        over = (await server.http.get(url, params={"budget": 10})).json()
        assert over["dropped"] == 2
        assert [text_of(each) for each in over["messages"]][1:] == [["two"]]
        assert over["tokens"] > 10
        assert over["overflow"] == {
            "code": "context_overflow",
            "detail": over["overflow"]["detail"],
            "tokens": over["tokens"],
            "budget": 10,
        }
        assert f"about {over['tokens']} tokens, and the budget is 10" in over["overflow"]["detail"]
        call = await context(server, session, (await calls_of(server, session))[0])
        assert (call["budget"], call["overflow"]) == (None, None)


async def test_context_of_call_lists_recalled_texts_with_reasons(tmp_path: Path) -> None:
    agent = perdure.Agent("desk", model="scripted:desk", memory=perdure.MemoryConfig())
    async with served(tmp_path, ["The Aurora."], agents=[agent]) as server:
        said = await server.store.create()
        entry = await said.append(user("The hotel near the river is the Aurora."))
        session = await server.said("Which hotel near the river?")
        (call,) = await calls_of(server, session)
        (part,) = (await context(server, session, call))["recalled"]
        assert part.pop("score") > 0
        assert set(part.pop("words")) == {"hotel", "near", "river"}
        assert "words" in part.pop("why")
        text = "The hotel near the river is the Aurora."
        assert part == {"kind": "said", "entryId": entry.id, "text": text}


async def test_entry_without_call_has_no_context(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as server:
        session = await server.said("hello")
        for call in (0, 999):
            found = await server.http.get(f"/v1/sessions/{session}/context", params={"call": call})
            assert (found.status_code, found.json()["code"]) == (404, "call_not_found")


async def test_call_that_waits_for_answer_is_not_shown_as_interrupted(tmp_path: Path) -> None:
    agent = perdure.Agent("desk", model="scripted:desk", tools=[write])
    asks = assistant(tool_call("c1", "write", {"text": "x"}))
    async with served(tmp_path, [asks, "done"], agents=[agent]) as server:
        sent = await server.http.post("/v1/messages", json={"text": "write it"})
        session = sent.json()["sessionId"]
        await server.until(session, "waiting")
        shown = (await server.http.get(f"/v1/sessions/{session}/context")).json()
        (result,) = shown["messages"][-1]["parts"]
        assert (result["call_id"], "still to come" in result["text"]) == ("c1", True)
        assert not result.get("is_error")


@pytest.mark.parametrize("long", ["context", "export"])
async def test_reading_a_long_session_does_not_block_other_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, long: str
) -> None:
    served_another = threading.Event()
    order: list[str] = []

    def after_another(whole: Callable[..., Any]) -> Callable[..., Any]:
        def read(*arguments: Any, **named: Any) -> Any:
            order.append("begun")
            assert served_another.wait(60)
            return whole(*arguments, **named)

        return read

    monkeypatch.setattr(
        contexts.build, "build_context", after_another(contexts.build.build_context)
    )
    monkeypatch.setattr(markdown, "render_markdown", after_another(markdown.render_markdown))
    async with served(tmp_path) as server:
        session = await server.store.create()
        await session.append(user("x" * 600_000), assistant("y" * 600_000))
        query = "?format=markdown" if long == "export" else ""
        url = f"/v1/sessions/{session.id}/{long}{query}"
        reading = asyncio.create_task(server.http.get(url))
        async with asyncio.timeout(60):
            while not order:  # noqa: ASYNC110 - a thread appends
                await asyncio.sleep(0.005)
        other = await server.client()
        assert (await other.get("/v1/sessions")).status_code == 200
        order.append("another was served")
        served_another.set()
        assert (await reading).status_code == 200
        order.append("read")
    assert order == ["begun", "another was served", "read"]


async def calls_of(server: Served, session: str) -> list[int]:
    """Return the seqs of the model calls of `session`."""
    turns = (await server.http.get(f"/v1/sessions/{session}/turns")).json()["items"]
    return [call["seq"] for turn in turns for call in turn["calls"] if call["type"] == "model"]


async def context(server: Served, session: str, call: int) -> dict[str, Any]:
    """Return the context of a call of `session`."""
    return (await server.http.get(f"/v1/sessions/{session}/context", params={"call": call})).json()


def text_of(message: Any) -> list[Any]:
    """Return the text of the parts of a message."""
    return [part.get("text") or part.get("name") for part in message["parts"]]
