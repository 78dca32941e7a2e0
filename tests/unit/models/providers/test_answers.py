"""Events and usage of the provider library, converted to deltas and usage of perdure."""

from __future__ import annotations

from pydantic_ai import messages as wire
from pydantic_ai.usage import RequestUsage

from perdure.models.protocol import Delta, TextDelta, ThinkingDelta, ToolCallDelta
from perdure.models.providers.call import EventMapper, usage_of
from perdure.session.messages import Usage


def deltas(mapper: EventMapper, *events: wire.ModelResponseStreamEvent) -> list[Delta]:
    return [delta for event in events for delta in mapper.deltas_of(event)]


def test_provider_events_become_deltas() -> None:
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


def test_half_of_an_emoji_is_sent_together_with_the_other_half() -> None:
    mapper = EventMapper()
    got = deltas(
        mapper,
        wire.PartStartEvent(index=0, part=wire.TextPart("fox \ud83e")),
        wire.PartDeltaEvent(index=0, delta=wire.TextPartDelta("\udd8a!")),
        wire.PartDeltaEvent(index=0, delta=wire.TextPartDelta("\udd8a")),
    )
    assert got == [TextDelta("fox "), TextDelta("🦊!"), TextDelta("\ufffd")]


def test_cached_tokens_are_not_counted_as_input() -> None:
    usage = RequestUsage(
        input_tokens=100, cache_read_tokens=60, cache_write_tokens=30, output_tokens=7
    )
    assert usage_of(usage, 5) == Usage(10, 7, 60, 30, 5)
    odd = RequestUsage(input_tokens=10, cache_read_tokens=60)
    assert usage_of(odd, None) == Usage(0, 0, 60)


def test_usage_that_was_not_reported_is_none() -> None:
    assert usage_of(RequestUsage(), None) is None
    assert usage_of(RequestUsage(input_tokens=5, unmeasured_requests=1), None) is None
