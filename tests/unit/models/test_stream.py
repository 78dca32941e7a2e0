"""Deltas become one message that can always be written to the log."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import MalformedResponse, ModelUnavailable
from perdure.models.protocol import (
    Delta,
    StreamEnd,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageUpdate,
)
from perdure.models.stream import (
    INVALID_JSON,
    AnswerBuilder,
    answer_of,
    call_ids,
    invalid_json,
    malformed_arguments,
    repair_unicode,
)
from perdure.session.messages import (
    Message,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    Usage,
    assistant,
    tool_call,
    user,
)

MODEL = "scripted:x"
STOP = StreamEnd("stop", Usage(3, 4))


def call(index: int, json_text: str = "", *, id_: str = "", name: str = "") -> ToolCallDelta:
    return ToolCallDelta(index, id_, name, json_text)


def made(*deltas: Delta) -> Message:
    return answer_of(deltas, MODEL)


def test_consecutive_deltas_of_one_kind_become_one_part() -> None:
    message = made(
        ThinkingDelta("a"),
        ThinkingDelta("b"),
        TextDelta("c"),
        TextDelta("d"),
        ThinkingDelta("e"),
        STOP,
    )
    assert message == Message(
        "assistant",
        (ThinkingPart("ab"), TextPart("cd"), ThinkingPart("e")),
        model=MODEL,
        stop_reason="stop",
        usage=Usage(3, 4),
    )


def test_empty_deltas_leave_no_part() -> None:
    assert made(TextDelta(""), ThinkingDelta(""), STOP).parts == ()


def test_interleaved_calls_are_separated_by_index() -> None:
    message = made(
        call(4, id_="b", name="two"),
        call(1, id_="a", name="one"),
        call(1, '{"x"'),
        call(4, '{"y":'),
        call(1, ": 1}"),
        call(4, "[2]}"),
        StreamEnd("tool_calls"),
    )
    assert message.parts == (
        ToolCallPart("b", "two", {"y": [2]}),
        ToolCallPart("a", "one", {"x": 1}),
    )


@pytest.mark.parametrize("nothing", ["", "  ", "null", "{}"])
def test_call_without_arguments_gets_an_empty_object(nothing: str) -> None:
    (only,) = made(call(0, nothing, id_="a", name="t"), STOP).tool_calls
    assert only.args == {}


@pytest.mark.parametrize(
    "text",
    [
        '{"path": ',
        "[1]",
        '"x"',
        "3",
        "{'a': 1}",
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": "\\ud800"}',
        '{"a":' + "[" * 100_000,
    ],
)
def test_arguments_that_are_not_an_object_are_stored_unchanged(text: str) -> None:
    (only,) = made(call(0, text, id_="a", name="t"), STOP).tool_calls
    assert only.args == {INVALID_JSON: text}
    assert invalid_json(only) == text


def test_valid_arguments_are_not_reported_as_invalid() -> None:
    assert invalid_json(tool_call("a", "t", {"path": "x"})) is None
    assert invalid_json(tool_call("a", "t", {INVALID_JSON: "x", "path": "y"})) is None
    assert invalid_json(tool_call("a", "t")) is None


@pytest.mark.parametrize(
    ("said", "has_call", "told"),
    [
        ("stop", True, "tool_calls"),
        ("tool_calls", False, "tool_calls"),
        ("tool_calls", True, "tool_calls"),
        ("length", True, "length"),
        ("content_filter", False, "content_filter"),
    ],
)
def test_answer_that_calls_tools_never_has_stop_reason_stop(
    said: StopReason, has_call: bool, told: StopReason
) -> None:
    calls = (call(0, "{}", id_="a", name="t"),) if has_call else ()
    assert made(TextDelta("x"), *calls, StreamEnd(said)).stop_reason == told


def test_usage_of_unfinished_answer_is_known() -> None:
    builder = AnswerBuilder(MODEL)
    assert (builder.counted, builder.has_begun) == (None, False)
    builder.add(UsageUpdate(Usage(10, 1)))
    assert (builder.counted, builder.has_begun) == (Usage(10, 1), False)
    builder.add(ToolCallDelta(0, "a", "t"))
    assert builder.has_begun
    builder.add(StreamEnd("stop"))
    assert builder.build().usage == Usage(10, 1)


def test_answer_cut_at_its_limit_keeps_only_complete_calls() -> None:
    message = made(
        TextDelta("Both."),
        call(0, '{"a": 1}', id_="a", name="t"),
        call(1, '{"a": ', id_="b", name="t"),
        call(2, "", id_="c", name="t"),
        StreamEnd("length"),
    )
    assert [part.id for part in message.tool_calls] == ["a"]


def test_partial_answer_contains_text_reasoning_and_complete_calls() -> None:
    builder = AnswerBuilder(MODEL)
    assert builder.partial().parts == ()
    for delta in (
        ThinkingDelta("hm"),
        TextDelta("I lo"),
        call(0, '{"a": 1}', id_="a", name="t"),
        call(1, '{"a": {"b": 1}', id_="b", name="t"),
    ):
        builder.add(delta)
    partial = builder.partial()
    assert partial.parts == (ThinkingPart("hm"), TextPart("I lo"), tool_call("a", "t", {"a": 1}))
    assert (partial.model, partial.stop_reason) == (MODEL, None)
    builder.add(call(1, "}"))
    builder.add(TextDelta("ok"))
    assert [part.id for part in builder.partial().tool_calls] == ["a", "b"]


def test_stream_without_an_end_raises_unavailable() -> None:
    with pytest.raises(ModelUnavailable, match="broke off"):
        made(TextDelta("half"))


def test_deltas_after_the_end_are_rejected() -> None:
    with pytest.raises(ValueError, match="after the end"):
        made(STOP, TextDelta("more"))


def test_call_without_a_name_is_malformed() -> None:
    with pytest.raises(MalformedResponse, match="without naming it"):
        made(call(0, "{}", id_="a"), STOP)


def test_call_ids_and_names_that_arrive_late_are_accepted() -> None:
    message = made(call(0, "{"), call(0, "}", name="t"), call(0, id_="late"), STOP)
    assert message.tool_calls == (ToolCallPart("late", "t", {}),)


def test_surrogate_halves_in_names_and_ids_are_repaired() -> None:
    deltas = [ToolCallDelta(0, "c\ud800", "n\udfff", "{}"), StreamEnd("tool_calls", None)]
    (call,) = answer_of(deltas, "p:m").tool_calls
    assert (call.id, call.name) == ("c\ufffd", "n\ufffd")


@pytest.mark.parametrize(
    "usage",
    [
        Usage(input_tokens=-1),
        Usage(output_tokens=10**30),
        Usage(input_tokens=cast("Any", 1.5)),
        Usage(input_tokens=1, cost_microcents=-5),
    ],
)
def test_implausible_token_count_is_ignored(usage: Usage) -> None:
    counted = Usage(input_tokens=7)
    for known, deltas in (
        (None, [UsageUpdate(usage), StreamEnd("stop", usage)]),
        (counted, [UsageUpdate(counted), UsageUpdate(usage), StreamEnd("stop", usage)]),
    ):
        assert answer_of([TextDelta("a"), *deltas], "p:m").usage == known


def test_duplicate_or_missing_call_ids_get_new_unique_ids() -> None:
    before = call_ids([user("x"), assistant(tool_call("call_0", "t"), tool_call("call_1", "t"))])
    deltas = [
        call(0, "{}", id_="call_0", name="t"),
        call(1, "{}", id_="call_0", name="t"),
        call(2, "{}", id_="new", name="t"),
        call(3, "{}", name="t"),
        STOP,
    ]
    message = answer_of(deltas, MODEL, before)
    assert [part.id for part in message.tool_calls] == ["call_0-2", "call_0-3", "new", "call_0-4"]


def test_finishing_a_stream_twice_gives_the_same_message() -> None:
    builder = AnswerBuilder(MODEL)
    for delta in (TextDelta("x"), call(0, "{}", name="t"), STOP):
        builder.add(delta)
    assert builder.build() == builder.build()


def test_halves_of_an_emoji_in_two_deltas_are_joined() -> None:
    high, low = "\ud83e", "\udd8a"
    builder = AnswerBuilder(MODEL)
    builder.add(TextDelta(f"a fox: {high}"))
    assert builder.partial().text == "a fox: \ufffd"
    builder.add(TextDelta(low))
    builder.add(STOP)
    assert builder.build().text == "a fox: 🦊"


words = st.text(alphabet=st.characters(), max_size=12) | st.sampled_from(["\ud83e", "\udd8a", "}"])
deltas_of_one_answer = st.lists(
    st.builds(TextDelta, words)
    | st.builds(ThinkingDelta, words)
    | st.builds(
        ToolCallDelta,
        st.integers(0, 3),
        st.sampled_from(["", "a", "b", "\ud83e"]),
        words.map("t{}".format),
        st.sampled_from(["", "{", "}", '"x"', ":", "1", "null"]) | words,
    ),
    max_size=20,
)


@given(deltas_of_one_answer, st.sampled_from(["stop", "tool_calls", "length"]))
def test_any_answer_can_be_written_to_log(deltas: list[Delta], reason: StopReason) -> None:
    builder = AnswerBuilder(MODEL, taken_ids=["a"])
    for delta in deltas:
        builder.add(delta)
        partial = builder.partial()
        assert msgspec.json.decode(msgspec.json.encode(partial), type=Message) == partial
        assert all(invalid_json(part) is None for part in partial.tool_calls)
    builder.add(StreamEnd(reason))
    message = builder.build()
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message
    ids = [part.id for part in message.tool_calls]
    assert len({*ids, "a"}) == len(ids) + 1
    assert all(ids)


@given(st.lists(st.text(max_size=9)), st.data())
def test_message_is_the_same_for_any_chunk_boundaries(
    texts: list[str], data: st.DataObject
) -> None:
    whole = "".join(texts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    bounds = zip([0, *cuts], [*cuts, len(whole)], strict=True)
    pieces = [TextDelta(whole[start:end]) for start, end in bounds]
    assert made(*pieces, STOP).text == repair_unicode(whole)


@given(
    st.lists(
        st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=5), max_size=3),
        max_size=4,
    )
)
def test_calls_are_complete_for_any_interleaving_of_single_characters(
    arguments: list[dict[str, object]],
) -> None:
    texts = [json.dumps(args) for args in arguments]
    heads = [call(index, id_=f"c{index}", name="t") for index in range(len(texts))]
    longest = max(map(len, texts), default=0)
    rounds = (
        (call(index, text[at : at + 1]) for index, text in enumerate(texts))
        for at in range(longest)
    )
    message = made(*heads, *chain.from_iterable(rounds), STOP)
    assert [part.args for part in message.tool_calls] == arguments


def test_error_for_invalid_arguments_shows_no_part_of_a_secret() -> None:
    text = "no " * 62 + "sk-ant-api03-" + "Ab1" * 30
    error = malformed_arguments(tool_call("a", "t", {INVALID_JSON: text}))
    assert error is not None
    assert "no no" in str(error)
    assert "sk-ant" not in str(error)
