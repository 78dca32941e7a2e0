"""The scripted model plays its scenario, the same in every process."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import ConfigError, ContextOverflow, ModelRefused, ModelUnavailable, RateLimited
from perdure.models.protocol import (
    Delta,
    ModelInfo,
    ModelRequest,
    TextDelta,
    ToolCallDelta,
    ToolDeclaration,
)
from perdure.models.scenario import Hang, Reply, Say, Scenario, uncut
from perdure.models.scenario_yaml import load_scenario, read_scenario
from perdure.models.scripted import (
    MOST_REMEMBERED,
    Heard,
    MessageCounter,
    ScriptedModel,
    estimated_tokens,
)
from perdure.models.stream import AnswerBuilder, answer_of
from perdure.session.kinds import CONTINUE_TEXT
from perdure.session.messages import Message, Usage, assistant, tool_call, tool_result, user
from tests.fakes.clock import ManualClock


def scripted(text: str, clock: ManualClock | None = None) -> ScriptedModel:
    return ScriptedModel(read_scenario(text, name="x"), clock=clock or ManualClock())


async def deltas(model: ScriptedModel, *messages: Message, name: str = "x") -> list[Delta]:
    request = ModelRequest(f"scripted:{name}", messages or (user("Hello"),))
    return [delta async for delta in model.stream(request)]


async def answer(model: ScriptedModel, *messages: Message, name: str = "x") -> Message:
    return answer_of(await deltas(model, *messages, name=name), f"scripted:{name}")


async def test_same_request_gets_the_same_answer_in_another_process() -> None:
    text = "sequence: [{text: a, calls: [{name: t}, {name: t}]}]"
    first, second = await answer(scripted(text)), await answer(scripted(text))
    assert first == second
    assert len({call.id for call in first.tool_calls}) == 2


async def test_equal_calls_at_different_points_of_a_conversation_have_different_ids() -> None:
    model = scripted("rules: [{calls: [{name: t}]}]")
    (first,) = (await answer(model)).tool_calls
    (second,) = (await answer(model, user("Hello"), assistant("a"), user("b"))).tool_calls
    assert first.id != second.id


async def test_scripted_answer_follows_scripted_failures() -> None:
    model = scripted(
        "sequence: [{error: {code: rate_limited, retry_after_s: 3, times: 2}, text: ok}]"
    )
    for _ in range(2):
        with pytest.raises(RateLimited) as raised:
            await answer(model)
        assert raised.value.retry_after_s == 3
    assert (await answer(model)).text == "ok"
    with pytest.raises(RateLimited):
        await answer(model, user("another request"))


async def test_failure_in_answer_follows_earlier_text() -> None:
    model = scripted("sequence: [{steps: [{text: one}, {cut: {times: 1}}, {text: ' two'}]}]")
    builder = AnswerBuilder("m")
    for delta in await deltas(model):
        builder.add(delta)
    assert builder.partial().text == "one"
    with pytest.raises(ModelUnavailable):
        builder.build()
    assert (await answer(model)).text == "one two"


async def test_scripted_delays_use_the_clock_of_the_model() -> None:
    clock = ManualClock()
    model = scripted(
        "sequence: [{delay_ms: 1000, chunk_delay_ms: 250, chunk_chars: 1, text: ab}]", clock
    )
    task = asyncio.create_task(answer(model))
    slept: list[float] = []
    while not task.done():
        await asyncio.sleep(0)
        if clock.sleepers:
            slept.append(clock.sleepers[0])
            clock.advance(clock.sleepers[0])
    assert (await task).text == "ab"
    assert slept == [1.0, 0.25, 0.25]


async def test_text_is_split_as_defined_in_scenario() -> None:
    got = await deltas(scripted("{chunk_chars: 3, sequence: [{text: abcdefgh}]}"))
    assert [d.text for d in got if isinstance(d, TextDelta)] == ["abc", "def", "gh"]


async def test_parallel_calls_are_interleaved() -> None:
    got = await deltas(
        scripted(
            "{chunk_chars: 4, rules: [{calls: [{name: a, json: '123456'}, {name: b, json: '78'}]}]}"
        )
    )
    pieces = [(d.index, d.json) for d in got if isinstance(d, ToolCallDelta)]
    assert pieces == [(0, ""), (1, ""), (0, "1234"), (1, "78"), (0, "56")]


async def test_usage_missing_in_a_script_is_estimated() -> None:
    model = scripted(
        """
        rules:
          - {when: {user_contains: told}, text: x, usage: {input_tokens: 7, cost_microcents: 9}}
          - {when: {user_contains: none}, text: x, usage: none}
          - {text: '12345678'}
        """
    )
    assert (await answer(model, user("x" * 400))).usage == Usage(100, 2)
    assert (await answer(model, user("told"))).usage == Usage(7, cost_microcents=9)
    assert (await answer(model, user("none"))).usage is None


async def test_request_larger_than_the_context_window_raises_context_overflow() -> None:
    model = scripted("{model: {context_window: 100, max_output_tokens: 9}, rules: [{text: ok}]}")
    assert model.info("scripted:x") == ModelInfo("scripted:x", 100, 9)
    assert (await answer(model, user("x" * 400))).text == "ok"
    with pytest.raises(ContextOverflow) as raised:
        await answer(model, user("x" * 401))
    assert (raised.value.used_tokens, raised.value.limit_tokens) == (101, 100)


async def test_model_refuses_after_end_of_script() -> None:
    model = scripted("sequence: [{text: only}]")
    with pytest.raises(ModelRefused, match="no reply for this request"):
        await answer(model, user("a"), assistant("b"), user("c"))


async def test_error_for_an_unknown_scenario_lists_the_known_names() -> None:
    with pytest.raises(ModelRefused, match="available: echo, x"):
        await answer(scripted("sequence: [{text: a}]"), name="y")


async def test_echo_is_available_without_scenarios() -> None:
    message = await answer(ScriptedModel(clock=ManualClock()), name="echo")
    assert message.text.startswith("offline scripted model:")
    assert message.usage is not None


async def test_summary_without_script_is_generated() -> None:
    asked = user("<conversation>\n[User]: hi\n</conversation>")
    message = await answer(scripted("sequence: [{text: not this}]"), asked)
    assert "## Goal\n[User]: hi" in message.text


async def test_each_scenario_is_available_as_a_separate_model() -> None:
    scenarios = (read_scenario(f"rules: [{{text: {n}}}]", name=n) for n in ("one", "two"))
    model = ScriptedModel(*scenarios, clock=ManualClock())
    assert (await answer(model, name="two")).text == "two"
    assert (await answer(model, name="one")).text == "one"


def test_every_part_of_request_counts_as_tokens() -> None:
    small = ModelRequest("m", (user("x" * 40),))
    assert estimated_tokens(small) == 10
    tool = ToolDeclaration("read_file", "Reads.", {"type": "object"})
    larger = ModelRequest(
        "m",
        (*small.messages, assistant(tool_call("c", "read_file", {"path": "x" * 40}))),
        system="y" * 40,
        tools=(tool,),
    )
    assert estimated_tokens(larger) > 10 + 10 + 10 + 10


def test_scenario_named_echo_replaces_the_built_in_scenario() -> None:
    model = ScriptedModel(Scenario(name="echo", context_window=5), clock=ManualClock())
    assert model.info("scripted:echo").context_window == 5


# What was said -----------------------------------------------------------------------------------


SAID = (
    user("a"),
    user(CONTINUE_TEXT),
    assistant("b", tool_call("c", "look", {"where": "é"})),
    tool_result("c", "nothing"),
    assistant("d" * 100),
)


def told(messages: tuple[Message, ...]) -> tuple[int, str]:
    """Return the number of answers in `messages`, and a digest of them, computed independently."""
    said = msgspec.json.encode(messages)
    answers = sum(message.role == "assistant" for message in uncut(messages))
    return answers, hashlib.blake2b(said, digest_size=6).hexdigest()


def counted(heard: Heard) -> tuple[int, str]:
    return heard.answers, heard.name


@given(st.lists(st.sampled_from(SAID), min_size=1, max_size=60), st.lists(st.integers(1, 12)))
def test_growing_conversation_has_the_same_token_count_as_a_new_conversation(
    said: list[Message], steps: list[int]
) -> None:
    hearing, upto = MessageCounter(), 0
    for step in [*steps, len(said)]:
        upto = min(len(said), upto + step)
        # The end is another object in every request.
        messages = (*said[: upto - 2], *(msgspec.structs.replace(m) for m in said[upto - 2 : upto]))
        heard = hearing.count_messages(messages)
        assert counted(heard) == told(messages)
        assert heard.size_bytes == Heard().and_then(messages).size_bytes


def test_message_counter_is_correct_for_diverging_conversations() -> None:
    hearing, first = MessageCounter(), user("hello")
    left, right = ((first, *(assistant(f"{side}{n}") for n in range(99))) for side in "lr")
    for messages in (left, right, left[:50], left, (first, *right[50:])):
        assert counted(hearing.count_messages(messages)) == told(messages)


def test_scripted_model_remembers_only_the_newest_conversations() -> None:
    hearing = MessageCounter()
    several = [
        (user(f"{n}"), *(assistant(f"{m}") for m in range(40))) for n in range(2 * MOST_REMEMBERED)
    ]
    for messages in [*several, *several]:
        assert counted(hearing.count_messages(messages)) == told(messages)


def test_empty_conversation_has_no_answers() -> None:
    assert counted(MessageCounter().count_messages(())) == told(())


@pytest.mark.parametrize(
    ("steps", "limit"),
    [((Hang(),), "first_byte_timeout_s"), ((Say("Wait"), Hang()), "stream_idle_timeout_s")],
)
async def test_scripted_hang_ends_at_the_timeout_of_the_request(
    steps: tuple[Say | Hang, ...], limit: str
) -> None:
    clock = ManualClock()
    model = ScriptedModel(Scenario(name="a", sequence=(Reply(steps=steps),)), clock=clock)
    limits: dict[str, Any] = {limit: 30.0}
    request = ModelRequest("scripted:a", (user("Hi"),), **limits)

    async def words() -> list[Delta]:
        return [delta async for delta in model.stream(request)]

    task = asyncio.ensure_future(words())
    await asyncio.sleep(0.01)
    clock.advance(29)
    await asyncio.sleep(0.01)
    assert not task.done()
    clock.advance(1)
    with pytest.raises(ModelUnavailable, match=rf"30 s \({limit}\)"):
        await task


# Scenario files ---------------------------------------------------------------------------------


async def said(client: ScriptedModel, model: str) -> str:
    deltas = client.stream(ModelRequest(model, (user("hi"),)))
    return "".join([delta.text async for delta in deltas if isinstance(delta, TextDelta)])


async def test_file_path_in_the_model_name_selects_the_scenario_file(tmp_path: Path) -> None:
    file = tmp_path / "trip.yaml"
    file.write_text("name: other\nmodel: {context_window: 9000}\nrules: [{text: Ahoy}]\n")
    client, model = ScriptedModel(clock=ManualClock(), reads_files=True), f"scripted:{file}"
    client.require(model)
    assert await said(client, model) == "Ahoy"
    assert client.info(model).context_window == 9000
    file.write_text("rules: [{text: Land}]\n")
    os.utime(file, ns=(1, 1))
    assert await said(client, model) == "Land"


async def test_changed_scenario_file_resets_the_failure_count(tmp_path: Path) -> None:
    file = tmp_path / "trip.yaml"
    file.write_text("rules: [{steps: [{text: A}, {error: {code: rate_limited, times: 1}}]}]\n")
    client, model = ScriptedModel(clock=ManualClock(), reads_files=True), f"scripted:{file}"
    running = client.stream(ModelRequest(model, (user("hi"),)))
    assert await anext(running) == TextDelta("A")
    os.utime(file, ns=(1, 1))
    client.require(model)
    with pytest.raises(RateLimited):
        await anext(running)
    with pytest.raises(RateLimited):
        await said(client, model)
    assert await said(client, model) == "A"


async def test_scenario_file_is_read_on_the_calling_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "trip.yaml"
    file.write_text("rules: [{text: Ahoy}]\n")
    threads: list[int] = []

    def load(path: Path) -> Scenario:
        threads.append(threading.get_ident())
        return load_scenario(path)

    monkeypatch.setattr("perdure.models.scenario_yaml.load_scenario", load)
    client, long = ScriptedModel(clock=ManualClock(), reads_files=True), user("x" * 100_000)
    async for _ in client.stream(ModelRequest(f"scripted:{file}", (long,))):
        pass
    assert threads == [threading.get_ident()]


async def test_model_name_without_a_file_selects_a_built_in_scenario() -> None:
    client = ScriptedModel(clock=ManualClock(), reads_files=True)
    client.require("scripted:echo")
    assert "you wrote “hi”" in await said(client, "scripted:echo")


@pytest.mark.parametrize(("content", "told"), [(None, "cannot be read"), ("rules: 5", "line 1")])
async def test_file_that_is_not_a_scenario_is_reported(
    tmp_path: Path, content: str | None, told: str
) -> None:
    file = tmp_path / "trip.yml"
    if content is not None:
        file.write_text(content)
    client, model = ScriptedModel(clock=ManualClock(), reads_files=True), f"scripted:{file}"
    with pytest.raises(ConfigError, match=told):
        client.require(model)
    with pytest.raises(ModelRefused, match=told):
        await said(client, model)
    assert client.info(model).context_window is None
