"""A conversation with all kinds of content, and its content after export and import."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.interop.formats.conversation import Conversation, allowed_id, allowed_name, named
from perdure.interop.formats.native import Bundle
from perdure.interop.reports import Format
from perdure.session.codec import body_of
from perdure.session.ids import blob_hash
from perdure.session.kinds import CustomMessage
from perdure.session.media.inline import SCHEME
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
    assistant,
    tool_call,
    user,
)
from perdure.session.notes import SessionInfoChanged
from tests.fakes.bundles import Making
from tests.fakes.sources import empty_store, imported

PICTURE = b"\x89PNG\r\n\x1a\n a heron"
HANDLE = SCHEME + blob_hash(PICTURE)


class Spoken(msgspec.Struct, frozen=True):
    """The text without whitespace, the calls with their arguments, and the ids of the results."""

    text: str
    calls: tuple[tuple[str, str, object], ...]
    results: tuple[str, ...]


def bird_bundle() -> Bundle:
    """A session with a picture, a call with odd names, a failed result and a title."""
    making = Making()
    picture = MediaPart("image/png", HANDLE, len(PICTURE), name="bird.png")
    sound = MediaPart("audio/wav", "media://sha256-" + "1" * 64, 9)
    making.blobs.append(PICTURE)
    making.say(
        user("Which bird is it?", picture, sound),
        Message(
            "assistant",
            (TextPart("I look."), ToolCallPart("call:1", "guide.find", {"legs": "long"})),
            model="openai:gpt-5",
            stop_reason="tool_calls",
            usage=Usage(10, 5, cache_read_tokens=3),
        ),
        Message("tool", (ToolResultPart("call:1", "No such page.", is_error=True),)),
        assistant("A heron.", tool_call("c2", "note", {})),
        Message("tool", (ToolResultPart("c2", "Noted.", media=(picture,)),)),
        assistant("Done."),
    )
    making.note(SessionInfoChanged(title="Birds"))
    return making.made()


def spoken(conversation: Conversation) -> Spoken:
    """Return the content of `conversation`, with names and ids in the form that providers allow."""
    return _spoken([part for said in conversation.said for part in said.message.parts])


async def read_back(content: bytes, format: Format) -> Spoken:
    """Import `content`; return the content of the session. Checks that no line is malformed."""
    store = empty_store()
    report = await imported(store, content, format)
    assert report.malformed == ()
    bodies = [body_of(entry) for entry in await store.tree(report.session)]
    said = [body for body in bodies if isinstance(body, Message | CustomMessage)]
    return _spoken([part for body in said for part in body.parts])


def _spoken(parts: Sequence[Part]) -> Spoken:
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    texts += [named(part) for part in parts if isinstance(part, MediaPart)]
    calls = [part for part in parts if isinstance(part, ToolCallPart)]
    return Spoken(
        text="".join(sorted("".join("".join(texts).split()))),
        calls=tuple((allowed_id(each.id), allowed_name(each.name), each.args) for each in calls),
        results=tuple(allowed_id(p.call_id) for p in parts if isinstance(p, ToolResultPart)),
    )
