"""A session of perdure with the data that no file of another program contains."""

from __future__ import annotations

import msgspec

from perdure.session.codec import encode, new_side, new_tree
from perdure.session.entries import NewEntry, Sibling
from perdure.session.ids import StreamId, blob_hash
from perdure.session.info import StreamHeader
from perdure.session.kinds import BranchSummary, Compaction, CustomMessage, ModelChange
from perdure.session.media.inline import SCHEME
from perdure.session.messages import (
    MESSAGE,
    MediaPart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
    Usage,
)
from perdure.session.notes import CompactionUndone, SessionEnded, SessionInfoChanged
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore

STREAM = StreamId("of-its-own")
SOUND = b"ID3, as if it were a song"
FILM = b"\x1a\x45\xdf\xa3, as if it were a film"
AT = 1_760_000_000_000


def _media(content: bytes, mime_type: str) -> MediaPart:
    return MediaPart(mime_type, SCHEME + blob_hash(content), len(content))


def _said(message: Message, **meta: object) -> NewEntry:
    body = encode(message)
    if meta:
        body = body[:-1] + b',"meta":' + encode(meta) + b"}"
    return NewEntry(MESSAGE, body)


def _entries() -> tuple[NewEntry, ...]:
    sound, film = _media(SOUND, "audio/mpeg"), _media(FILM, "video/webm")
    usage = Usage(7, 3, 2, 1, 40_000)
    call = ToolCallPart("call-1", "listen", {"to": "the song"})
    answer = Message(
        "assistant",
        (ThinkingPart("", is_redacted=True), TextPart("I listen."), film, call),
        model="google:gemini",
        stop_reason="tool_calls",
        usage=usage,
    )
    unknown = UnknownPart(msgspec.Raw(b'{"type":"hologram"}'))
    cut = Message("assistant", (TextPart("No more."),), stop_reason="content_filter", error="shut")
    return (
        new_side(SessionInfoChanged(title="A song")),
        _said(Message("system", (TextPart("Be musical."),))),
        new_tree(ModelChange("google:gemini")),
        _said(
            Message("user", (TextPart("What is this?"), sound, unknown)), heard_by="a microphone"
        ),
        _said(Message("context", (TextPart("It is Sunday."),))),
        _said(answer),
        _said(Message("tool", (ToolResultPart("call-1", "la la", media=(sound,)),))),
        new_tree(CustomMessage("studio", (TextPart("aside"),), in_context=False)),
        new_tree(Compaction("A song was heard.", tokens_before=9, usage=usage)),
        new_side(CompactionUndone(), about=Sibling(8)),
        _said(cut),
        new_tree(BranchSummary("It was left.", read_files=("song.mp3",), usage=usage)),
        new_side(SessionEnded()),
    )


async def stored(store: SessionStore) -> StreamId:
    """Store the session in `store`, and return the id of the session."""
    header = StreamHeader(
        STREAM,
        AT,
        origin="subagent",
        cwd="/home/ana/music",
        parent=StreamId("its-parent"),
        metadata={"import": {"format": "elsewhere", "session": "x", "recorded_with": "a radio"}},
    )
    write = Write(stream=STREAM, create=header, entries=_entries())
    await store.commit(Commit(writes=(write,), at=AT + 1, blobs=(SOUND, FILM)))
    return STREAM
