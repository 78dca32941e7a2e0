"""Our requests as the library's messages, and its events as our deltas."""

from __future__ import annotations

from typing import cast

from pydantic_ai import messages as wire
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.usage import RequestUsage

from perdure.models.protocol import (
    Delta,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolDeclaration,
)
from perdure.models.providers.mapping import (
    EventMapper,
    usage_of,
    wire_messages,
    wire_parameters,
    wire_settings,
)
from perdure.session.messages import (
    MediaPart,
    Message,
    TextPart,
    ThinkingPart,
    ToolResultPart,
    Usage,
    assistant,
    thinking,
    tool_call,
    tool_result,
    user,
)

PNG = MediaPart("image/png", "media://sha256-" + "a" * 64, 3, "photo.png")
BYTES = {PNG.handle: b"png"}


def mapped(
    *messages: Message, media: dict[str, bytes] | None = None, field: str | None = None
) -> list[list[object]]:
    """Per message of the library's its parts; a user prompt as its content."""
    request = ModelRequest("openai:x", messages, media=media or {})
    return [
        [part.content if isinstance(part, wire.UserPromptPart) else part for part in message.parts]
        for message in wire_messages(request, "openai", field)
    ]


def test_text_goes_as_text() -> None:
    assert mapped(user("a", "b")) == [["a\n\nb"]]
    assert mapped(Message("context", (TextPart("recalled"),)), user("a")) == [["recalled", "a"]]


def test_an_answer_keeps_text_and_calls() -> None:
    first, second = mapped(user("x"), assistant("Reading.", tool_call("c", "t", {"a": 1})))
    assert first == ["x"]
    assert second == [wire.TextPart("Reading."), wire.ToolCallPart("t", {"a": 1}, "c")]


def test_results_name_their_call_and_tool_and_say_whether_they_failed() -> None:
    _, _, results = mapped(
        user("x"),
        assistant(tool_call("c1", "read_file"), tool_call("c2", "read_file")),
        tool_result("c1", "one"),
        tool_result("c2", "gone", is_error=True, name="renamed"),
    )
    parts = cast("list[wire.ToolReturnPart[object]]", results)
    assert [(p.tool_call_id, p.tool_name, p.content, p.outcome) for p in parts] == [
        ("c1", "read_file", "one", "success"),
        ("c2", "renamed", "gone", "failed"),
    ]


def test_images_go_as_their_bytes_between_the_words() -> None:
    [[content]] = mapped(user("look:", PNG, "well?"), media=BYTES)
    assert content == ["look:", wire.BinaryContent(b"png", media_type="image/png"), "well?"]


def test_media_that_cannot_be_sent_become_a_line_that_says_so() -> None:
    video = MediaPart("video/mp4", "media://sha256-" + "b" * 64, 9, "film.mp4")
    text = MediaPart("text/csv", "media://sha256-" + "c" * 64, 4)
    held = {video.handle: b"123456789", text.handle: b"a,\xff"}
    [[content]] = mapped(user(PNG, video, text), media=held)
    assert content == (
        "(photo.png, image/png, 3 bytes: not available)\n\n"
        "(film.mp4, video/mp4, 9 bytes: cannot be shown to this model)\n\n"
        "(attachment, text/csv)\na,\ufffd"
    )


def test_what_a_tool_shows_follows_its_results() -> None:
    result = Message("tool", (ToolResultPart("c", "an image", media=(PNG,)),))
    _, _, parts = mapped(user("x"), assistant(tool_call("c", "t")), result, media=BYTES)
    assert isinstance(parts[0], wire.ToolReturnPart)
    assert parts[1] == [
        "(shown by the tool call c)",
        wire.BinaryContent(b"png", media_type="image/png"),
    ]


def test_reasoning_is_left_out() -> None:
    assert mapped(user("x"), assistant(thinking("hm"), "yes"))[1] == [wire.TextPart("yes")]


def test_reasoning_of_the_rounds_under_way_goes_back_in_its_own_field() -> None:
    def thought(text: str, model: str, call: str) -> Message:
        return assistant(thinking(text), tool_call(call, "t"), model=model)

    found = mapped(
        user("x"),
        assistant(thinking("an earlier turn"), "yes", model="openai:x"),
        user("y"),
        thought("another model's", "other:y", "a"),
        tool_result("a", "1"),
        thought("its own", "openai:x", "b"),
        tool_result("b", "2"),
        assistant(ThinkingPart("hidden", is_redacted=True), model="openai:x"),
        field="reasoning_content",
    )
    thoughts = [part for parts in found for part in parts if isinstance(part, wire.ThinkingPart)]
    assert [(part.content, part.id, part.provider_name) for part in thoughts] == [
        ("its own", "reasoning_content", "openai")
    ]


def test_tools_and_the_system_prompt_are_parameters() -> None:
    schema: dict[str, object] = {"type": "object", "properties": {}}
    request = ModelRequest(
        "m", (user("x"),), system="Be brief.", tools=(ToolDeclaration("t", "Does.", schema),)
    )
    parameters = wire_parameters(request)
    (tool,) = parameters.function_tools
    assert (tool.name, tool.description, tool.parameters_json_schema) == ("t", "Does.", schema)
    assert [part.content for part in parameters.instruction_parts or []] == ["Be brief."]
    assert wire_parameters(ModelRequest("m", ())) == ModelRequestParameters(instruction_parts=[])


def test_settings_are_those_that_were_given() -> None:
    assert wire_settings(ModelRequest("m", ())) == {"thinking": False}
    request = ModelRequest("m", (), thinking_level="xhigh", max_output_tokens=9, temperature=0.5)
    assert wire_settings(request) == {"thinking": "xhigh", "max_tokens": 9, "temperature": 0.5}


# Events


def deltas(mapper: EventMapper, *events: wire.ModelResponseStreamEvent) -> list[Delta]:
    return [delta for event in events for delta in mapper.deltas_of(event)]


def test_events_become_deltas() -> None:
    mapper = EventMapper()
    assert not mapper.has_begun
    assert deltas(
        mapper,
        wire.PartStartEvent(index=0, part=wire.ThinkingPart("h", id="reasoning")),
        wire.PartDeltaEvent(index=0, delta=wire.ThinkingPartDelta(content_delta="m")),
        wire.PartStartEvent(index=1, part=wire.TextPart("y")),
        wire.PartDeltaEvent(index=1, delta=wire.TextPartDelta("es")),
        wire.PartEndEvent(index=1, part=wire.TextPart("yes")),
        wire.PartStartEvent(index=2, part=wire.ToolCallPart("t", None, "c1")),
        wire.PartStartEvent(index=3, part=wire.ToolCallPart("u", '{"a"', "c2")),
        wire.PartDeltaEvent(index=2, delta=wire.ToolCallPartDelta(args_delta="{}")),
        wire.PartDeltaEvent(index=3, delta=wire.ToolCallPartDelta(args_delta=":1}")),
        wire.PartDeltaEvent(index=3, delta=wire.ToolCallPartDelta(tool_name_delta="u")),
    ) == [
        ThinkingDelta("h"),
        ThinkingDelta("m"),
        TextDelta("y"),
        TextDelta("es"),
        ToolCallDelta(2, "c1", "t", ""),
        ToolCallDelta(3, "c2", "u", '{"a"'),
        ToolCallDelta(2, json="{}"),
        ToolCallDelta(3, json=":1}"),
    ]
    assert mapper.has_begun
    assert mapper.thinking_field == "reasoning"


def test_reasoning_between_tags_has_no_field() -> None:
    mapper = EventMapper()
    deltas(mapper, wire.PartStartEvent(index=0, part=wire.ThinkingPart("h", id="content")))
    assert mapper.thinking_field is None


def test_half_an_emoji_waits_for_the_other_half() -> None:
    mapper = EventMapper()
    got = deltas(
        mapper,
        wire.PartStartEvent(index=0, part=wire.TextPart("fox \ud83e")),
        wire.PartDeltaEvent(index=0, delta=wire.TextPartDelta("\udd8a!")),
        wire.PartDeltaEvent(index=0, delta=wire.TextPartDelta("\udd8a")),
    )
    assert got == [TextDelta("fox "), TextDelta("🦊!"), TextDelta("\ufffd")]


def test_usage_is_split_into_classes_that_do_not_overlap() -> None:
    usage = RequestUsage(
        input_tokens=100, cache_read_tokens=60, cache_write_tokens=30, output_tokens=7
    )
    assert usage_of(usage, 5) == Usage(10, 7, 60, 30, 5)
    odd = RequestUsage(input_tokens=10, cache_read_tokens=60)
    assert usage_of(odd, None) == Usage(0, 0, 60)


def test_usage_that_was_not_reported_is_none() -> None:
    assert usage_of(RequestUsage(), None) is None
    assert usage_of(RequestUsage(input_tokens=5, unmeasured_requests=1), None) is None
