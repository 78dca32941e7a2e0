"""`perdure.record` with a stream that fails: cancelled readers, errors in the stream."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anthropic
import anyio
import openai
import pytest

import perdure

FINISHED = threading.Event()
"""Set when a test ends, so that endless streams stop."""


class Provider(BaseHTTPRequestHandler):
    """A server that streams "one two " and then hangs or fails, as the last message requests."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        is_chat = self.path.endswith("completions")
        told: str = asked["messages"][-1]["content"]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        if not is_chat:
            message = {"id": "m", "type": "message", "role": "assistant", "model": "c"}
            usage = {"input_tokens": 1, "output_tokens": 1}
            self._send("message_start", message={**message, "content": [], "usage": usage})
            text = {"type": "text", "text": ""}
            self._send("content_block_start", index=0, content_block=text)
        for word in () if told == "fail at once" else ("one ", "two "):
            if is_chat:
                choice = {"index": 0, "delta": {"content": word}, "finish_reason": None}
                chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
                self._send("chunk", **chunk, choices=[choice])
            else:
                delta = {"type": "text_delta", "text": word}
                self._send("content_block_delta", index=0, delta=delta)
        if told == "hang":
            FINISHED.wait()
        else:
            self._send("error", error={"type": "overloaded", "message": "too much"})

    def _send(self, kind: str, **event: object) -> None:
        text = json.dumps({"type": kind, **event})
        self.wfile.write(f"event: {kind}\ndata: {text}\n\n".encode())
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def provider() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    FINISHED.clear()
    yield f"http://127.0.0.1:{server.server_port}"
    FINISHED.set()
    server.shutdown()
    server.server_close()
    thread.join()


Client = openai.AsyncOpenAI | anthropic.AsyncAnthropic


def client_of(library: str, provider: str) -> Client:
    if library == "openai":
        return openai.AsyncOpenAI(api_key="key", base_url=provider, max_retries=0)
    return anthropic.AsyncAnthropic(api_key="key", base_url=provider, max_retries=0)


def ignore() -> None:
    """Do nothing."""


async def read(client: Client, text: str, seen: Callable[[], None] = ignore) -> None:
    """Read the answer to `text`; call `seen` when the answer has two words."""
    messages: Any = [{"role": "user", "content": text}]
    stream: Any
    if isinstance(client, openai.AsyncOpenAI):
        stream = await client.chat.completions.create(model="m", messages=messages, stream=True)
    else:
        stream = await client.messages.create(
            model="m", messages=messages, stream=True, max_tokens=9
        )
    async for event in stream:
        if "two" in str(event):
            seen()


async def cancel_once(reading: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
    has_read = asyncio.Event()
    task = asyncio.ensure_future(reading(has_read.set))
    await has_read.wait()
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()


async def cancel_often(reading: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
    has_read = asyncio.Event()
    task = asyncio.ensure_future(reading(has_read.set))
    await has_read.wait()
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    assert task.cancelled()


async def leave_scope(reading: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
    """Cancel `reading` with anyio, which cancels again at each await until the scope ends."""
    with anyio.CancelScope() as scope:
        await reading(scope.cancel)
    assert scope.cancelled_caught


Cancel = Callable[[Callable[[Callable[[], None]], Awaitable[None]]], Awaitable[None]]


@pytest.mark.parametrize("cancel", [cancel_once, cancel_often, leave_scope])
@pytest.mark.parametrize("library", ["openai", "anthropic"])
@pytest.mark.parametrize("is_blocking", [False, True])
async def test_received_part_of_a_cancelled_stream_is_recorded(
    library: str, cancel: Cancel, provider: str, tmp_path: Path, *, is_blocking: bool
) -> None:
    address = f"sqlite:///{tmp_path / 's.db'}"
    if is_blocking:
        with perdure.blocking.open(address) as store:
            client = client_of(library, provider)
            with perdure.record(client, store, session_id="s"):
                await cancel(lambda seen: read(client, "hang", seen))
            await client.close()
    else:
        async with perdure.open(address) as store:
            client = client_of(library, provider)
            with perdure.record(client, store, session_id="s"):
                await cancel(lambda seen: read(client, "hang", seen))
            await client.close()
    async with perdure.open(address) as store:
        messages = await (await store.open("s")).messages()
        assert [(each.role, each.text, each.stop_reason) for each in messages] == [
            ("user", "hang", None),
            ("assistant", "one two ", "aborted"),
        ]


@pytest.mark.parametrize("library", ["openai", "anthropic"])
@pytest.mark.parametrize("told", ["fail", "fail at once"])
async def test_error_in_a_stream_is_recorded(library: str, told: str, provider: str) -> None:
    async with perdure.open("memory:") as store:
        client = client_of(library, provider)
        with (
            perdure.record(client, store, session_id="s"),
            pytest.raises((openai.APIError, anthropic.APIError), match="too much"),
        ):
            await read(client, told)
        await client.close()
        session = await store.open("s")
        answers = [each.text for each in (await session.messages())[1:] if each.text]
        notes = [perdure.body_of(entry) async for entry in session.notes()]
        reasons = [note.data["reason"] for note in notes if isinstance(note, perdure.Note)]
        assert answers == (["one two "] if told == "fail" else [])
        assert reasons == ["too much"]
