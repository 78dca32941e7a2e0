"""An endpoint of OpenAI's protocol, over real HTTP on this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from perdure.errors import ConfigError, EmbedderUnavailable
from perdure.models.embedders.endpoint import EmbeddingEndpoint
from perdure.models.keys import ApiKey
from tests.fakes.ports import reserved_port
from tests.fakes.samples import case

Seen = list[tuple[str, dict[str, str], object]]


@asynccontextmanager
async def serving(
    status: int, answer: bytes, most: int = 100_000
) -> AsyncGenerator[tuple[str, Seen]]:
    """Answer every request identically; yield the address and the received requests.

    Reject texts of more than `most` characters.
    """
    seen: Seen = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await reader.readexactly(int(headers["content-length"]))
        asked = json.loads(body)
        seen.append((head[0], headers, asked))
        is_long = any(len(text) > most for text in asked["input"])
        code, said = (400, b"too many tokens") if is_long else (status, answer)
        line = f"HTTP/1.1 {code} X\r\ncontent-length: {len(said)}\r\n\r\n"
        writer.write(line.encode() + said)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/v1", seen


def endpoint(address: str, *, is_local_open: bool = True) -> EmbeddingEndpoint:
    key = ApiKey("secret-key", "test")
    return EmbeddingEndpoint(
        "small", provider="ollama", address=address, key=key, is_local_open=is_local_open
    )


async def test_vectors_are_returned_in_the_order_of_the_texts_sent() -> None:
    rows = [{"index": 1, "embedding": [0.5, 1]}, {"index": 0, "embedding": [1, 0]}]
    async with serving(200, json.dumps({"data": rows}).encode()) as (address, seen):
        embedder = endpoint(address)
        assert await embedder.embed(["one", "two"]) == [[1, 0], [0.5, 1]]
    ((line, headers, body),) = seen
    assert line == "POST /v1/embeddings HTTP/1.1"
    assert headers["authorization"] == "bearer secret-key"
    assert body == {"model": "small", "input": ["one", "two"], "encoding_format": "float"}
    assert embedder.model == "ollama:small"


async def test_rejected_long_texts_are_retried_with_shortened_texts() -> None:
    rows = [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [2]}]
    answer = json.dumps({"data": rows}).encode()
    async with serving(200, answer, most=1_500) as (address, seen):
        assert await endpoint(address).embed(["one", "long " * 800]) == [[1], [2]]
        assert await endpoint(address).embed(["one", "long " * 300]) == [[1], [2]]
    assert [[len(text) for text in body["input"]] for _, _, body in seen] == [  # pyright: ignore[reportIndexIssue, reportUnknownVariableType, reportUnknownArgumentType] - of JSON
        *([3, 4_000], [3, 1_000]),
        [3, 1_500],
    ]
    for most, calls in ((900, 2), (2, 1)):
        text = "long " * 800 if most > 2 else "long"
        async with serving(200, answer, most) as (address, seen):
            with case(most), pytest.raises(EmbedderUnavailable, match="status 400: too many"):
                await endpoint(address).embed([text, text])
        assert len(seen) == calls


async def test_errors_for_failed_embedder_answers_do_not_contain_the_key() -> None:
    for status, answer, reason in (
        (503, b"try later", "status 503: try later"),
        (200, b"<html>", "no vectors"),
        (200, b'{"data": []}', "not one vector for each text"),
        (200, b'{"data": [{"index": 7, "embedding": [1]}]}', "not one vector for each text"),
    ):
        async with serving(status, answer) as (address, _):
            with case(reason), pytest.raises(EmbedderUnavailable, match=reason) as caught:
                await endpoint(address).embed(["one"])
        assert "secret-key" not in str(caught.value)


async def test_shown_part_of_an_embedder_error_has_no_part_of_a_key_at_its_end() -> None:
    answer = b"no " * 61 + b"sk-ant-api03-" + b"Ab1" * 30
    async with serving(401, answer) as (address, _):
        with pytest.raises(EmbedderUnavailable, match="status 401: no no") as caught:
            await endpoint(address).embed(["one"])
    assert "sk-ant" not in str(caught.value)


async def test_unreachable_embedder_server_raises_embedder_unavailable() -> None:
    with (
        reserved_port() as port,
        pytest.raises(EmbedderUnavailable, match="no connection could be made"),
    ):
        await endpoint(f"http://127.0.0.1:{port}/v1").embed(["one"])


def test_private_address_must_be_allowed_in_configuration() -> None:
    with pytest.raises(ConfigError, match="address of the embedder is not allowed"):
        endpoint("http://127.0.0.1:1/v1", is_local_open=False)
