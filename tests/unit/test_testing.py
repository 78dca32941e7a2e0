"""`perdure.testing`: the scripted model for the unit tests of applications."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import assistant, thinking, tool_call, user
from perdure.testing import ScriptedModel, recorded_answers


@perdure.tool(effect="read")
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


async def test_scripted_model_answers_in_order_and_shows_its_requests() -> None:
    model = ScriptedModel(
        [
            assistant(thinking("easy"), tool_call("c1", "add", {"a": 2, "b": 3})),
            "It is 5.",
            "You are welcome.",
        ]
    )
    agent = perdure.Agent("helper", model="test:any", tools=[add])
    async with (
        perdure.open("memory:") as store,
        perdure.Runtime(store, agents=[agent], models=model) as runtime,
    ):
        chat = await runtime.start("helper")
        assert (await chat.send("What is 2 + 3?")).text == "It is 5."
        assert (await chat.send("Thanks")).text == "You are welcome."
        other = await runtime.start("helper")
        assert (await other.send("What is 2 + 3?")).text == "It is 5."
        await other.send("Thanks")
        with pytest.raises(
            perdure.errors.TurnFailed, match=r"test:any: .*gives ScriptedModel no further"
        ):
            await other.send("And now?")
    assert len(model.requests) == 7
    assert model.requests[1].messages[-1].text == "5"
    assert [each.name for each in model.requests[0].tools] == ["add"]
    assert repr(model) == "<ScriptedModel answers=3 requests=7>"


async def test_last_scripted_error_is_raised_by_every_later_call() -> None:
    busy = perdure.errors.RateLimited("test:any", "slow down", 0.0)
    refused = perdure.errors.ModelRefused("test:any", "no credit", 402)
    model = ScriptedModel([busy, "Done.", refused])
    async with (
        perdure.open("memory:") as store,
        perdure.Runtime(store, agents=[perdure.Agent("a", model="x:y")], models=model) as runtime,
    ):
        chat = await runtime.start("a")
        assert (await chat.send("one")).text == "Done."
        for _ in range(2):
            with pytest.raises(perdure.errors.TurnFailed, match="no credit"):
                await chat.send("two")


async def test_scripted_errors_end_a_turn_like_provider_errors() -> None:
    errors = perdure.errors
    for error, failure in (
        (errors.CredentialsRefused("test:any", "bad key", 401), "provider_auth"),
        (errors.ModelRefused("test:any", "no", 400), "provider_refused"),
    ):
        async with (
            perdure.open("memory:") as store,
            perdure.Runtime(store, models=ScriptedModel([error])) as runtime,
        ):
            chat = await runtime.start(perdure.Agent("a", model="x:y"))
            with pytest.raises(errors.TurnFailed) as failed:
                await chat.send("one")
            assert failed.value.failure == failure


async def test_scripted_summary_is_used_by_compaction() -> None:
    told = "They talked about words, in many words, at great length."
    model = ScriptedModel(["word " * 300] * 4, summary=told)
    kept = perdure.CompactionSettings(keep_recent_tokens=100)
    agent = perdure.Agent("a", model="x:y", compaction=kept)
    async with (
        perdure.open("memory:") as store,
        perdure.Runtime(store, agents=[agent], models=model) as runtime,
    ):
        chat = await runtime.start(agent)
        for _ in range(3):
            await chat.send("word " * 300)
        await chat.compact()
        bodies = [perdure.body_of(entry) async for entry in chat.session.entries(-1)]
    summaries = [body.summary for body in bodies if isinstance(body, perdure.Compaction)]
    assert summaries[0].startswith(told)


class Overloaded(perdure.errors.ModelError):
    """An error of a program whose code is the code of an error of perdure."""

    code = "rate_limited"


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ("Hello", "takes a list of answers, not str"),
        ([5], "as answers, not int"),
        ([user("Hello")], "not one of user: use perdure.assistant"),
        ([perdure.errors.ModelError("m", "r")], "cannot raise ModelError: use RateLimited"),
        ([Overloaded("m", "r")], "cannot raise Overloaded: use RateLimited"),
    ],
)
def test_error_for_invalid_scripted_answers_lists_accepted_types(answers: Any, told: str) -> None:
    with pytest.raises(perdure.errors.WrongArgument, match=told):
        ScriptedModel(answers)


def test_scripted_model_works_without_async() -> None:
    with (
        perdure.blocking.open("memory:") as store,
        perdure.blocking.Runtime(
            store, [perdure.Agent("a", model="x:y")], models=ScriptedModel(["Hi."])
        ) as runtime,
    ):
        assert runtime.start("a").send("Hello").result().text == "Hi."


async def test_recorded_answers_of_a_session_file_are_replayed(tmp_path: Path) -> None:
    asks = assistant(thinking("easy"), tool_call("c1", "add", {"a": 2, "b": 3}))
    agent = perdure.Agent("helper", model="test:any", tools=[add])
    file = tmp_path / "sum.jsonl"
    answers: list[perdure.Message] = [asks, assistant("It is 5.")]
    for _ in range(2):
        async with (
            perdure.open("memory:") as store,
            perdure.Runtime(store, agents=[agent], models=ScriptedModel(answers)) as runtime,
        ):
            chat = await runtime.start("helper")
            assert (await chat.send("What is 2 + 3?")).text == "It is 5."
            await chat.session.export("perdure", file, replace=True)
        answers = await recorded_answers(file)
    assert answers[0].parts == asks.parts


async def test_recorded_answers_require_exactly_one_session(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no session")
    with pytest.raises(perdure.errors.FormatError, match=r"notes\.txt"):
        await recorded_answers(tmp_path / "notes.txt")
    async with perdure.open("memory:") as store:
        for _ in range(2):
            await (await store.create()).append(user("Hello"))
        await store.export("perdure", tmp_path / "both")
    with pytest.raises(perdure.errors.FormatError, match="one session is needed, not 2"):
        await recorded_answers(tmp_path / "both")
    with pytest.raises(perdure.errors.FormatError, match="cannot be read"):
        await recorded_answers(tmp_path / "missing.jsonl")
