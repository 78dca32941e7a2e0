"""`perdure.record` around the real client libraries, against a provider on loopback."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import anthropic
import openai
import pytest

import perdure
from perdure.errors import WrongArgument
from perdure.session.messages import Message, TextPart

CHAT: dict[str, Any] = {
    "id": "chat-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-x",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "I add.",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "add", "arguments": '{"a": 1}'},
                    }
                ],
            },
        }
    ],
    "usage": {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17},
}
RESPONSE: dict[str, Any] = {
    "id": "resp-1",
    "object": "response",
    "created_at": 1,
    "model": "gpt-x",
    "status": "completed",
    "output": [
        {
            "type": "message",
            "id": "m1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Three.", "annotations": []}],
        }
    ],
    "usage": {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9},
    "tools": [],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
}
MESSAGE = {
    "id": "msg-1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [{"type": "text", "text": "Three."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 7, "output_tokens": 2},
}


def chat_chunks() -> Iterator[object]:
    def chunk(delta: object, reason: str | None = None) -> dict[str, object]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {
            "id": "chat-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "gpt-x",
            "choices": [choice],
        }

    yield chunk({"role": "assistant", "content": "I "})
    yield chunk({"content": "add."})
    call = {
        "index": 0,
        "id": "c1",
        "type": "function",
        "function": {"name": "add", "arguments": '{"a"'},
    }
    yield chunk({"tool_calls": [call]})
    yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]})
    yield chunk({}, "tool_calls")
    yield {**chunk({}), "choices": [], "usage": CHAT["usage"]}


def message_events() -> Iterator[object]:
    yield {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}}
    block: object = {"type": "tool_use", "id": "t1", "name": "add", "input": {}}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    delta = {"type": "text_delta", "text": "Three."}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "content_block_start", "index": 1, "content_block": block}
    for piece in ('{"a"', ": 1}"):
        delta = {"type": "input_json_delta", "partial_json": piece}
        yield {"type": "content_block_delta", "index": 1, "delta": delta}
    yield {"type": "content_block_stop", "index": 1}
    end = {"stop_reason": "tool_use", "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": 9}}
    yield {"type": "message_stop"}


def response_events() -> Iterator[object]:
    yield {"type": "response.created", "response": {**RESPONSE, "output": []}, "sequence_number": 0}
    yield {"type": "response.completed", "response": RESPONSE, "sequence_number": 1}


class Provider(BaseHTTPRequestHandler):
    """A server for all three APIs; a request with the text "fail" fails."""

    protocol_version = "HTTP/1.1"
    whole: ClassVar[dict[str, object]] = {
        "completions": CHAT,
        "responses": RESPONSE,
        "messages": MESSAGE,
    }
    streams: ClassVar[dict[str, Any]] = {
        "completions": chat_chunks,
        "responses": response_events,
        "messages": message_events,
    }

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        asked = self.rfile.read(length)
        name = self.path.rpartition("/")[2]
        if b'"fail"' in asked:
            self._send(400, "application/json", b'{"error": {"message": "no", "type": "bad"}}')
        elif json.loads(asked).get("stream"):
            text = "".join(
                f"event: {event.get('type', 'message')}\ndata: {json.dumps(event)}\n\n"
                for event in self.streams[name]()
            )
            self._send(200, "text/event-stream", f"{text}data: [DONE]\n\n".encode())
        else:
            self._send(200, "application/json", json.dumps(self.whole[name]).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        if "gzip" in self.headers.get("accept-encoding", ""):  # as the libraries ask by themselves
            body = gzip.compress(body)
            self.send_header("content-encoding", "gzip")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@contextmanager
def recorded(store: perdure.blocking.Store, client: Any) -> Generator[perdure.Recording]:
    with perdure.record(client, store, title="Calls") as recording:
        yield recording


def said(store: perdure.blocking.Store, recording: perdure.Recording) -> list[Message]:
    assert recording.session_id is not None
    return store.open(recording.session_id).messages()


def as_text(messages: list[Message]) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in messages]


SAID: Any = CHAT["choices"][0]["message"]
HISTORY: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1 + 2?"},
]
RESULT: Any = {"role": "tool", "tool_call_id": "c1", "content": "3"}


@pytest.mark.parametrize("streams", [False, True])
def test_chat_completions_are_recorded_as_one_conversation(provider: str, *, streams: bool) -> None:
    with (
        perdure.blocking.open("memory:") as store,
        openai.OpenAI(api_key="key", base_url=f"{provider}/v1") as client,
        recorded(store, client) as recording,
    ):
        for messages in (HISTORY, [*HISTORY, SAID, RESULT]):
            create: Any = client.chat.completions.create
            answer = create(model="gpt-x", messages=messages, stream=streams)
            if streams:
                assert sum(1 for _ in answer) == 6
        messages = said(store, recording)
        assert as_text(messages) == [
            ("system", "Be brief."),
            ("user", "1 + 2?"),
            ("assistant", "I add."),
            ("tool", "3"),
            ("assistant", "I add."),
        ]
        answer = messages[2]
        assert answer.tool_calls == (perdure.tool_call("c1", "add", {"a": 1}),)
        assert (answer.model, answer.stop_reason) == ("openai:gpt-x", "tool_calls")
        assert answer.usage == perdure.Usage(12, 5)
        assert b"key" not in b"".join(
            entry.body for entry in store.open(recording.session_id or "").tree_entries()
        ).replace(b"key_", b"")


def test_call_with_another_first_message_starts_a_branch(
    provider: str,
) -> None:
    with (
        perdure.blocking.open("memory:") as store,
        openai.OpenAI(api_key="key", base_url=f"{provider}/v1", max_retries=0) as client,
        recorded(store, client) as recording,
    ):
        for text in ("1 + 2?", "1 + 3?"):
            client.chat.completions.create(
                model="gpt-x", messages=[{"role": "user", "content": text}]
            )
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(
                model="gpt-x", messages=[{"role": "user", "content": "fail"}]
            )
        session = store.open(recording.session_id or "")
        assert len(session.tree()) == 3
        notes = [perdure.body_of(entry) for entry in session.notes("recorded.failure")]
        assert [
            str(note.data["reason"])[:8] for note in notes if isinstance(note, perdure.Note)
        ] == ["HTTP 400"]


def test_stream_closed_early_is_an_aborted_answer(provider: str) -> None:
    with (
        perdure.blocking.open("memory:") as store,
        openai.OpenAI(api_key="key", base_url=f"{provider}/v1") as client,
        recorded(store, client) as recording,
    ):
        stream = client.chat.completions.create(
            model="gpt-x", messages=[{"role": "user", "content": "Hello"}], stream=True
        )
        next(iter(stream))
        stream.close()
        assert said(store, recording)[-1].role == "assistant"


@pytest.mark.parametrize("streams", [False, True])
async def test_async_openai_call_with_a_previous_response_id_continues_its_session(
    provider: str, *, streams: bool
) -> None:
    async with (
        perdure.open("memory:") as store,
        openai.AsyncOpenAI(api_key="key", base_url=f"{provider}/v1") as client,
    ):
        with perdure.record(client, store) as recording:
            for previous in (None, "resp-1"):
                options: dict[str, Any] = (
                    {} if previous is None else {"previous_response_id": previous}
                )
                create: Any = client.responses.create
                answer = await create(
                    model="gpt-x",
                    input="1 + 2?",
                    instructions="Be brief.",
                    stream=streams,
                    **options,
                )
                if streams:
                    assert [event.type async for event in answer][-1] == "response.completed"
        session = await store.open(recording.session_id or "")
        assert as_text(await session.messages()) == [
            ("system", "Be brief."),
            ("user", "1 + 2?"),
            ("assistant", "Three."),
            ("user", "1 + 2?"),
            ("assistant", "Three."),
        ]
        await client.responses.create(model="gpt-x", input="Not recorded")
        assert len(await session.messages()) == 5


def test_messages_of_anthropic_are_recorded_and_continued_later(
    provider: str, tmp_path: Path
) -> None:
    first: Any = {"role": "user", "content": "1 + 2?"}
    with perdure.blocking.open(f"sqlite:///{tmp_path}/s.db") as store:
        for _ in range(2):
            with (
                anthropic.Anthropic(api_key="key", base_url=provider) as client,
                perdure.record(client, store, session_id="calls"),
            ):
                client.messages.create(
                    model="claude-x", max_tokens=9, system="Be brief.", messages=[first]
                )
                said_first: Any = {
                    "role": "assistant",
                    "content": [{"type": "text", "text": "Three."}],
                }
                with client.messages.stream(
                    model="claude-x",
                    max_tokens=9,
                    system="Be brief.",
                    messages=[first, said_first, {"role": "user", "content": "Sure?"}],
                ) as stream:
                    assert "".join(stream.text_stream) == "Three."
        messages = store.open("calls").messages()
        assert as_text(messages) == [
            ("system", "Be brief."),
            ("user", "1 + 2?"),
            ("assistant", "Three."),
            ("user", "Sure?"),
            ("assistant", "Three."),
        ]
        assert messages[-1].tool_calls == (perdure.tool_call("t1", "add", {"a": 1}),)
        assert messages[-1].usage == perdure.Usage(7, 9)


async def test_async_messages_of_anthropic_are_recorded(provider: str) -> None:
    with perdure.blocking.open("memory:") as store:
        async with anthropic.AsyncAnthropic(api_key="key", base_url=provider) as client:
            with perdure.record(client, store) as recording:
                asked: Any = [{"role": "user", "content": "1 + 2?"}]
                calls = [
                    client.messages.create(model="claude-x", max_tokens=9, messages=asked)
                    for _ in range(3)
                ]
                await asyncio.gather(*calls)
        session = await asyncio.to_thread(store.open, recording.session_id or "")
        assert len(await asyncio.to_thread(session.tree)) == 1
        assert len(await asyncio.to_thread(session.tree_entries)) == 4


def test_default_store_is_used_without_store_argument(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_STORE", f"sqlite:///{tmp_path}/default.db")
    with (
        openai.OpenAI(api_key="key", base_url=f"{provider}/v1") as client,
        perdure.record(client) as recording,
    ):
        client.responses.create(model="gpt-x", input="Hello")
    with perdure.blocking.open(f"sqlite:///{tmp_path}/default.db") as store:
        assert as_text(said(store, recording)) == [("user", "Hello"), ("assistant", "Three.")]


ASKED: Any = [{"role": "user", "content": "1 + 2?"}]
PARTS = [TextPart("I add."), perdure.tool_call("c1", "add", {"a": 1})]


def read_lines(response: Any) -> object:
    return list(response.iter_lines())


def read_raw(response: Any) -> object:
    return b"".join(response.http_response.iter_raw())


def read_raw_pieces(response: Any) -> object:
    return list(response.http_response.iter_raw(chunk_size=5))


READ: list[Callable[[Any], object]] = [
    lambda response: list(response.parse()),
    lambda response: response.read(),
    lambda response: response.json(),
    lambda response: response.text(),
    lambda response: list(response.iter_bytes(7)),
    lambda response: list(response.iter_text()),
    read_lines,
    read_raw,
    read_raw_pieces,
]


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("streams", [False, True])
def test_response_is_recorded_whichever_way_it_is_read(
    provider: str, *, compressed: bool, streams: bool
) -> None:
    encoding = {"accept-encoding": "gzip" if compressed else "identity"}
    with (
        perdure.blocking.open("memory:") as store,
        openai.OpenAI(api_key="key", base_url=f"{provider}/v1", default_headers=encoding) as client,
    ):
        create: Any = client.chat.completions.with_streaming_response.create
        for number, read in enumerate(READ):
            if streams and number == 2:
                continue  # events are no JSON document
            with perdure.record(client, store) as recording:
                with create(model="gpt-x", messages=ASKED, stream=streams) as response:
                    assert response.headers.get("content-encoding") == (
                        "gzip" if compressed else None
                    )
                    assert read(response)
                asked, answer = said(store, recording)
            assert (asked.text, [*answer.parts]) == ("1 + 2?", PARTS), number
            assert (answer.stop_reason, answer.usage) == ("tool_calls", perdure.Usage(12, 5))


def test_raw_responses_are_recorded(provider: str) -> None:
    with (
        perdure.blocking.open("memory:") as store,
        openai.OpenAI(api_key="key", base_url=f"{provider}/v1") as client,
        anthropic.Anthropic(api_key="key", base_url=provider) as other,
    ):
        for streams in (False, True):
            with recorded(store, client) as recording:
                create: Any = client.responses.with_raw_response.create
                answer = create(model="gpt-x", input="1 + 2?", stream=streams).parse()
                assert not streams or list(answer)
            assert as_text(said(store, recording)) == [("user", "1 + 2?"), ("assistant", "Three.")]
            with recorded(store, other) as recording:
                create = other.messages.with_raw_response.create
                answer = create(model="c", max_tokens=9, messages=ASKED, stream=streams).parse()
                assert not streams or list(answer)
            assert as_text(said(store, recording)) == [("user", "1 + 2?"), ("assistant", "Three.")]


@pytest.mark.parametrize("streams", [False, True])
async def test_async_raw_response_is_recorded_when_read(provider: str, *, streams: bool) -> None:
    async with (
        perdure.open("memory:") as store,
        anthropic.AsyncAnthropic(api_key="key", base_url=provider) as client,
    ):
        create: Any = client.messages.with_streaming_response.create
        for is_raw in (True, False):
            with perdure.record(client, store) as recording:
                async with create(
                    model="c", max_tokens=9, messages=ASKED, stream=streams
                ) as response:
                    pieces = response.http_response.aiter_raw() if is_raw else response.iter_lines()
                    assert [piece async for piece in pieces]
            session = await store.open(recording.session_id or "")
            asked, answer = await session.messages()
            assert (asked.text, answer.text) == ("1 + 2?", "Three.")
            assert answer.stop_reason == ("tool_calls" if streams else "stop")


def test_response_closed_early_or_unread_is_reported(provider: str) -> None:
    with (
        perdure.blocking.open("memory:") as store,
        openai.OpenAI(api_key="key", base_url=f"{provider}/v1") as client,
    ):
        create: Any = client.chat.completions.with_streaming_response.create
        with recorded(store, client) as recording:
            with create(model="gpt-x", messages=ASKED, stream=True) as response:
                pieces = response.http_response.iter_raw(chunk_size=20)
                assert next(pieces)
            with create(model="gpt-x", messages=ASKED):
                pass
        session = store.open(recording.session_id or "")
        assert as_text(session.messages()) == [("user", "1 + 2?")]
        notes = [perdure.body_of(entry) for entry in session.notes("recorded.failure")]
        assert [note.data["reason"] for note in notes if isinstance(note, perdure.Note)] == [
            "the response is not JSON, or was not read"
        ] * 2


async def test_unsupported_clients_and_stores_are_rejected() -> None:
    client = openai.OpenAI(api_key="key")
    with pytest.raises(WrongArgument, match="a client of openai or anthropic, not object"):
        perdure.record(object())
    async with perdure.open("memory:") as store:
        with pytest.raises(WrongArgument, match="is not async"):
            perdure.record(client, store)
        several = openai.AsyncOpenAI(api_key="key")
        with perdure.record(several, store), pytest.raises(WrongArgument, match="being recorded"):
            perdure.record(several, store)
