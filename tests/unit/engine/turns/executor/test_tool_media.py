"""Truncated outputs are stored whole. Only the session that stored an output can read it back."""

from __future__ import annotations

from perdure.models.scenario import CallTools, ScriptedCall
from perdure.session.codec import body_of, new_side
from perdure.session.ids import StreamId, blob_hash
from perdure.session.info import StreamHeader
from perdure.session.ledger import ToolFinished
from perdure.session.messages import user
from perdure.stores.protocol import Commit, Write
from perdure.tools.decorator import tool
from tests.fakes.chats import Stage, calls, says

WHOLE = "".join(f"{n}\n" for n in range(30_000))
HANDLE = f"media://{blob_hash(WHOLE.encode())}"


@tool(effect="read")
def flood() -> str:
    """Say much."""
    return WHOLE


def reading(handle: str, start: int = 0) -> CallTools:
    json = f'{{"handle": "{handle}", "start": {start}}}'
    return CallTools((ScriptedCall("read_media", json, id="r"),))


async def result_of(stage: Stage, stream: str = "s") -> str:
    session = await stage.store.open(stream)
    messages = [m for m in await session.messages() if m.role == "tool"]
    return messages[-1].text


async def test_truncated_output_has_handle_and_is_readable() -> None:
    stage = Stage(says(calls("flood")), says(reading(HANDLE, 160_000)), says("done"))
    chat = await stage.chat([flood, "read_media"])
    await chat.send("go")
    session = await stage.store.open("s")
    finished = [
        body
        async for entry in session.entries()
        if isinstance(body := body_of(entry), ToolFinished) and body.tool == "flood"
    ]
    assert [body.whole for body in finished] == [HANDLE]
    cut = next(m.text for m in await session.messages() if m.role == "tool")
    assert f"read_media gives the whole of it: {HANDLE}, {len(WHOLE)} bytes]" in cut
    assert await result_of(stage) == WHOLE[160_000:]


async def test_short_output_is_not_stored_twice() -> None:
    @tool(effect="read")
    def short() -> str:
        """Say little."""
        return "little"

    stage = Stage(says(calls("short")), says("done"))
    await (await stage.chat([short])).send("go")
    assert await result_of(stage) == "little"


async def test_media_handle_in_a_text_gives_no_access_to_the_content() -> None:
    stage = Stage(says(reading(HANDLE)), says("done"))
    other = StreamHeader(id=StreamId("other"), created_at=0)
    finished = ToolFinished("c", "flood", "ok", succeeded=True, whole=HANDLE)
    write = Write(stream=other.id, create=other, entries=(new_side(finished),))
    await stage.memory.commit(Commit(writes=(write,), at=0, blobs=(WHOLE.encode(),)))
    chat = await stage.chat(["read_media"])
    await chat.session.append(user(f"look at {HANDLE}"))
    await chat.send(f"read {HANDLE}")
    assert await result_of(stage) == "read_media: this session holds no such thing"


async def test_unknown_media_handle_gets_the_same_error_as_a_forbidden_handle() -> None:
    stage = Stage(says(reading("media://sha256-" + "0" * 64)), says("done"))
    await (await stage.chat(["read_media"])).send("go")
    assert "holds no such thing" in await result_of(stage)
