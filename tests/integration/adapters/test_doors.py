"""A session written by a framework works with each command and call of perdure."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

import pytest
from agents import Agent as OpenAIAgent
from agents import RunConfig
from agents import Runner as OpenAIRunner
from agents.testing import ScriptedModel as OpenAIModel
from agents.testing import assistant_message
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner as AdkRunner
from google.genai import types
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs] - it has none
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel

import perdure
from perdure.adapters.google_adk import PerdureSessionService
from perdure.adapters.langgraph import PerdureSaver
from perdure.adapters.openai_agents import PerdureSession
from perdure.adapters.pydantic_ai import PerdureConversationStore
from perdure.interop.reports import ExportFormat
from perdure.testing import ScriptedModel
from tests.fakes.forked_commands import run_command
from tests.integration.adapters.conftest import POSTGRES_LATER

QUESTION, ANSWER = "Where is the lighthouse?", "It is on the cape."
SAID = [QUESTION, ANSWER]
ROWS = "The keeper rows."
SCENARIO = f"name: keeper\nsequence:\n  - text: {ANSWER}\n  - text: {ROWS}\n"
"""Scripted answers of the whole conversation; the framework's model gives the first itself."""
PORTABLE = ("pi", "operator", "claude-code", "codex", "opencode", "perdure")
"""Formats that an import reads."""


async def with_openai(store: perdure.Store, question: str) -> list[str]:
    """Ask in a session of the OpenAI Agents SDK, and return the input of the next run."""
    session = PerdureSession("s", store)
    agent = OpenAIAgent(name="guide", model=OpenAIModel([[assistant_message(ANSWER)]]))
    config = RunConfig(tracing_disabled=True)
    await OpenAIRunner.run(agent, question, session=session, run_config=config)
    items = [cast("dict[str, Any]", item) for item in await session.get_items()]
    contents = [item["content"] for item in items]
    return [each if isinstance(each, str) else each[0]["text"] for each in contents]


async def with_langgraph(store: perdure.Store, question: str) -> list[str]:
    """Send a question in a thread of LangGraph; return the messages of its state."""

    def answer(_: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(ANSWER)]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    graph = builder.compile(checkpointer=PerdureSaver(store))
    thread = {"configurable": {"thread_id": "s"}}
    state = await graph.ainvoke({"messages": [("user", question)]}, thread)
    return [message.content for message in state["messages"]]


class AdkModel(BaseLlm):
    """A model that gives one answer."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=ANSWER)]))


async def with_adk(store: perdure.Store, question: str) -> list[str]:
    """Send a question in a session of the ADK; return the texts of its events."""
    names: dict[str, Any] = {"app_name": "a", "user_id": "u", "session_id": "s"}
    service = PerdureSessionService(store)
    if await service.get_session(**names) is None:
        await service.create_session(**names)
    agent = LlmAgent(name="guide", model=AdkModel(model="scripted"))
    runner = AdkRunner(app_name="a", agent=agent, session_service=service)
    asked = types.Content(role="user", parts=[types.Part(text=question)])
    async for _ in runner.run_async(user_id="u", session_id="s", new_message=asked):
        pass
    session = await service.get_session(**names)
    assert session is not None
    parts = [
        part for event in session.events if event.content for part in event.content.parts or ()
    ]
    return [part.text or "" for part in parts]


async def with_pydantic_ai(store: perdure.Store, question: str) -> list[str]:
    """Send a question in a conversation of Pydantic AI; return the texts of its messages."""
    model = FunctionModel(lambda _messages, _info: ModelResponse(parts=[TextPart(ANSWER)]))
    conversations = PerdureConversationStore(store)
    conversation = await conversations.load("s") or Conversation(conversation_id="s")
    await conversations.save(
        await PydanticAgent(model, name="guide").run(question, conversation=conversation)
    )
    loaded = await conversations.load("s")
    assert loaded is not None
    parts = [part for message in loaded.messages for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, TextPart | UserPromptPart)]


class Framework(NamedTuple):
    """A framework: `ask` runs a turn in the framework, in the session with the id `stored_id`.

    `continues`: whether the framework sees messages that were written through perdure.
    """

    ask: Callable[[perdure.Store, str], Awaitable[list[str]]]
    stored_id: str
    continues: bool


FRAMEWORKS = {
    "openai": Framework(with_openai, "oa:s", continues=True),
    "langgraph": Framework(with_langgraph, "lg:s", continues=False),
    "adk": Framework(with_adk, "adk:a:u:s", continues=True),
    "pydantic-ai": Framework(with_pydantic_ai, "pai:s", continues=False),
}


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> Framework:
    return FRAMEWORKS[request.param]


@pytest.mark.all_only
async def test_session_of_a_framework_is_listed_searched_read_and_forked(
    store_address: str, framework: Framework
) -> None:
    async with perdure.open(store_address) as store:
        assert await framework.ask(store, QUESTION) == SAID
        assert [info.id for info in await store.recent()] == [framework.stored_id]
        (hit,) = await store.search("lighthouse")
        assert hit.stream == framework.stored_id
        session = await store.open(framework.stored_id)
        assert [message.text for message in await session.messages()] == SAID
        assert [message.role for message in await session.messages()] == ["user", "assistant"]
        copy = await session.fork(title="A copy")
        assert [message.text for message in await copy.messages()] == SAID
        await copy.append(perdure.user("only here"))
        assert [message.text for message in await session.messages()] == SAID
        assert (await store.verify()).is_ok


async def test_session_of_a_framework_is_exported_and_imported_again(
    framework: Framework, tmp_path: Path
) -> None:
    async with perdure.open("memory:") as store:
        await framework.ask(store, QUESTION)
        session = await store.open(framework.stored_id)
        for name in get_args(ExportFormat):
            await session.export(cast("ExportFormat", name), tmp_path / name)
            text = (tmp_path / name).read_text("utf-8")
            assert QUESTION in text, name
            assert ANSWER in text, name
    for name in ("markdown", "html"):
        page = (tmp_path / name).read_text("utf-8")
        assert "msgpack" not in page, name
    for name in PORTABLE:
        async with perdure.open("memory:") as other:
            (outcome,) = (await other.import_files([tmp_path / name])).files
            assert outcome.report is not None, name
            received = await other.open(outcome.report.session)
            assert [message.text for message in await received.messages()] == SAID, name


@POSTGRES_LATER
async def test_library_continues_a_session_of_a_framework(
    store_address: str, framework: Framework
) -> None:
    async with perdure.open(store_address) as store:
        await framework.ask(store, QUESTION)
        model = ScriptedModel([ANSWER, ROWS])
        agent = perdure.Agent("other", model="openai:gpt-5")
        async with perdure.Runtime(store, agents=[agent], models=model) as runtime:
            chat = await runtime.resume(framework.stored_id, agent=agent)
            assert (await chat.send("Who rows?")).text == ROWS
        (request,) = model.requests
        assert [message.text for message in request.messages][-3:] == [*SAID, "Who rows?"]
        other = ["Who rows?", ROWS]
        expected = [*SAID, *(other if framework.continues else []), "And now?", ANSWER]
        assert await framework.ask(store, "And now?") == expected


@POSTGRES_LATER
async def test_commands_accept_a_session_of_a_framework(
    store_address: str, framework: Framework, tmp_path: Path
) -> None:
    async with perdure.open(store_address) as store:
        await framework.ask(store, QUESTION)
    id, scenario = framework.stored_id, tmp_path / "keeper.yaml"
    scenario.write_text(SCENARIO)

    def run(*words: str) -> str:
        environment = {**os.environ, "LANG": "C.UTF-8"}
        done = run_command([*words, "--store", store_address], environment, tmp_path)
        assert done.code == 0, done.err
        return done.out.decode()

    assert [each["id"] for each in json.loads(run("sessions", "list", "--json"))] == [id]
    assert json.loads(run("sessions", "search", "lighthouse", "--json"))[0]["session"] == id
    assert ANSWER in run("sessions", "read", id)
    assert id in run("sessions", "show", id)
    said = run(
        *("chat", "--session", id, "-p", "Who rows?"),
        *("-m", "scripted:keeper", "--scenario", str(scenario)),
    )
    assert ROWS in said
    assert ROWS in run("export", id, "--format", "markdown")
    fork = run("sessions", "fork", id)
    assert fork
    assert len(json.loads(run("sessions", "list", "--json"))) == 2
