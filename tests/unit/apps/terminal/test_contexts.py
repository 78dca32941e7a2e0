"""The request to a model, as JSON and as a full text for people."""

from __future__ import annotations

import json

import msgspec

import perdure
from perdure.apps.terminal.contexts import context_data, context_lines
from perdure.apps.terminal.reports import report_lines, report_of
from perdure.apps.terminal.style import Style
from perdure.client.memory.last_turn import LastTurn, RecalledPiece
from perdure.memory.knowledge import Source
from perdure.session.ids import EntryId
from perdure.session.kinds import Compaction, ModelChange
from perdure.session.ledger import Trimmed
from perdure.session.messages import assistant, thinking, tool_call, tool_result, user


async def talk(store: perdure.Store) -> perdure.Session:
    session = await store.create(id="s")
    await session.append(ModelChange("openai:small"))
    await session.append(user("An old question"), assistant("An old answer"))
    kept = await session.append(user("Read \x1bit"))
    await session.append(Compaction("They asked something.", first_kept=kept.id))
    await session.append(
        assistant("Reading", thinking("hm"), tool_call("c1", "read", {"path": "å"})),
        tool_result("c1", "content"),
    )
    return session


async def test_context_json_has_the_documented_keys() -> None:
    async with perdure.open("memory:") as store:
        context = await (await talk(store)).context()
    data = msgspec.to_builtins(context_data(context, None))
    assert list(data) == ["model", "thinking_level", "tokens", "messages", "dropped", "last_turn"]
    assert (data["model"], data["dropped"]) == ("openai:small", 0)
    assert {frozenset(message) for message in data["messages"]} == {
        frozenset({"role", "parts", "entry_id"})
    }
    assert [message["role"] for message in data["messages"]] == ["user", "assistant", "tool"]
    assert data["messages"][1]["parts"][-1] == {
        "type": "tool_call",
        "id": "c1",
        "name": "read",
        "args": {"path": "å"},
    }
    assert data["messages"][2]["entry_id"] == "s/6"
    assert context_data(context, "Be brief")["system"] == "Be brief"


async def test_context_shows_the_arguments_of_an_edit_as_json() -> None:
    args = {"path": "a", "old_text": "one\ntwo", "new_text": "one\nthree"}
    async with perdure.open("memory:") as store:
        session = await store.create()
        await session.append(user("Mend it"), assistant(tool_call("c1", "edit_file", args)))
        context, report = await session.context(), await report_of(session, store.backend)
    text = "\n".join(context_lines(context, report, None, Style()))
    assert f"→ edit_file {json.dumps(args)}  c1" in text


async def test_context_includes_instructions_and_tools_of_the_agent() -> None:
    agent = perdure.Agent(
        "desk",
        model="scripted:echo",
        instructions="Be \x1bbrief.",
        tools=["read_file", "list_directory"],
    )
    async with perdure.open("memory:") as store:
        session = await talk(store)
        bare = await report_of(session, store.backend)
        async with perdure.Runtime(store, [agent]) as runtime:
            chat = await runtime.start(agent)
            await chat.send("hello")
            context = await chat.session.context()
            report = await report_of(chat.session, store.backend)
    lines = list(context_lines(context, report, None, Style()))
    at = lines.index("system prompt")
    assert "Be" in lines[at + 1]
    assert "\x1b" not in lines[at + 1]
    assert lines[at + 3].startswith("tools  by name")
    assert lines[at + 4] == "read_file, list_directory"
    data = msgspec.to_builtins(context_data(context, report.system_prompt, None, report.tools))
    assert list(data["tools"]) == ["read_file", "list_directory"]
    shown = "\n".join(report_lines(report, 80, Style()))
    assert "agent        desk, instructions, 2 tools" in shown
    assert "no agent yet: no system prompt and no tools" in context_lines(
        context, bare, None, Style()
    )


async def test_text_output_shows_every_message_in_full_with_reasons() -> None:
    async with perdure.open("memory:") as store:
        session = await talk(store)
        context = await session.context()
        report = await report_of(session, store.backend)
    text = "\n".join(context_lines(context, report, None, Style()))
    assert text.startswith("openai:small, thinking off: 3 messages, about ")
    assert "The summary of compaction 4 replaces 3 entries before 3;" in text
    assert "They asked something." in text
    assert "An old question" not in text
    assert '→ read {"path": "å"}  c1' in text
    assert "← result of read  c1\ncontent" in text
    assert "\x1b" not in text


async def test_context_output_counts_omitted_entries() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create(id="s")
        for number in range(20):
            await session.append(user(f"question {number} " * 20), assistant("answer"))
        context = await session.context(200)
        report = await report_of(session, store.backend)
        over = await session.context(10)
    (heading, reason, after, *_) = context_lines(context, report, 200, Style())
    assert after == ""
    assert (
        f"they need about {over.tokens} tokens."
        in list(context_lines(over, report, 10, Style()))[2]
    )
    assert context.dropped > 0
    assert "messages" in heading
    assert reason == f"{context.dropped} entries were left out, oldest first, to fit 200 tokens."


async def test_memory_of_the_last_turn_is_shown_with_scores_and_reasons() -> None:
    fact = RecalledPiece(
        kind="fact", id=EntryId("memory-1/0"), text="likes \x1btea", words=("tea",)
    )
    said = RecalledPiece(
        kind="said", id=EntryId("t/1"), text="Tea at five", why=("words", "date"), score=2.5
    )
    gone = RecalledPiece(kind="said", id=EntryId("t/2"), text=None, score=1.0)
    page = RecalledPiece(
        kind="knowledge",
        id=EntryId("k/0"),
        text="Tea",
        score=1.0,
        source=Source("a.md", "Tea / Hot"),
    )
    last = LastTurn(
        turn=3,
        recalled=(fact, said, gone, page),
        problem="it was locked",
        trimmed=Trimmed(4, 2, "max_working_tokens", 8_000, 1),
    )
    async with perdure.open("memory:") as store:
        session = await talk(store)
        context = await session.context()
        report = await report_of(session, store.backend)
    text = "\n".join(context_lines(context, report, None, Style(), last))
    assert "recalled for turn 3" in text
    assert "fact  memory-1/0  words: tea" in text
    assert "\x1b" not in text
    assert "said  t/1  2.50  date\n  Tea at five" in text
    assert "said  t/2  1.00\n  (erased since)" in text
    assert "  a.md, Tea / Hot: Tea" in text
    assert "Not all was recalled for turn 3: it was locked" in text
    expected = "4 messages were not sent, oldest first, to fit max_working_tokens of 8,000 tokens."
    assert f"Turn 3: {expected}" in text
    assert "Turn 3: 1 recalled text was not sent" in text
    data = msgspec.to_builtins(context_data(context, None, last))["last_turn"]
    assert data["recalled"][1]["score"] == 2.5
    assert data["trimmed"]["recalled"] == 1
