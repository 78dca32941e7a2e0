"""The content of messages in foreign formats: texts and lists of parts."""

from __future__ import annotations

from perdure.codecs.content import parts_of, result_of
from perdure.codecs.fields import Fields, text_in
from perdure.codecs.media import Media, unknown_part
from perdure.session.messages import MediaPart, Part, TextPart, ThinkingPart


def known(fields: Fields, _media: Media) -> Part | None:
    thought = text_in(fields, "thought")
    return None if thought is None else ThinkingPart(thought)


def test_message_content_can_be_a_text_or_a_list_of_parts() -> None:
    odd = {"type": "new", "x": 1}
    content = ["a", {"type": "text", "text": "b"}, {"thought": "c"}, odd, 7]
    found = parts_of(content, Media(), known)
    assert found == (
        *(TextPart("a"), TextPart("b"), ThinkingPart("c")),
        *(unknown_part(odd), unknown_part(7)),
    )
    assert parts_of("a", Media(), known) == parts_of(["a"], Media(), known) == (TextPart("a"),)
    assert parts_of([], Media(), known) == ()
    assert parts_of(None, Media(), known) is parts_of(1, Media(), known) is None


def test_texts_of_a_tool_result_are_joined_and_media_are_kept() -> None:
    picture = MediaPart("image/png", "perdure:1", 3)
    parts = (TextPart("a"), picture, unknown_part(1), TextPart("b"))
    result = result_of("c", parts, is_error=True, name="shot", unreadable="[odd]")
    assert (result.call_id, result.text, result.media) == ("c", "a\nb\n[odd]", (picture,))
    assert (result.is_error, result.name) == (True, "shot")
    assert result_of("c", parts, is_error=False).text == "a\nb"
