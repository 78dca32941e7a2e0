"""A client and the server that it calls, for the tests of one wire format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from perdure.errors import ModelError
from perdure.models.protocol import ModelClient, ModelRequest, ThinkingLevel, ToolDeclaration
from perdure.models.stream import AnswerBuilder
from perdure.session.messages import MediaPart, Message, user
from tests.fakes.model_server import Chunk, Handler, ModelServer, streaming

KEY = "sk-test-0123456789abcdef"
HELLO = (user("Hello"),)
PARAMETERS: Mapping[str, object] = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
}
READ = ToolDeclaration("read_file", "Reads a file.", PARAMETERS)
PNG = MediaPart("image/png", "media://sha256-" + "a" * 64, 4, "x.png")
PDF = MediaPart("application/pdf", "media://sha256-" + "b" * 64, 5, "x.pdf")
MEDIA = {PNG.handle: b"\x89PNG", PDF.handle: b"%PDF-"}
BASE64 = {PNG.handle: "iVBORw==", PDF.handle: "JVBERi0="}


@dataclass
class Wire:
    """A client, its server, and the requested model."""

    client: ModelClient
    server: ModelServer
    model: str

    def request(
        self, *messages: Message, level: ThinkingLevel = "off", limit: int | None = None
    ) -> ModelRequest:
        """Return a request with tools and pictures, for `messages` or a greeting."""
        return ModelRequest(
            self.model,
            messages or HELLO,
            tools=(READ,),
            thinking_level=level,
            max_output_tokens=limit,
            media=MEDIA,
        )

    async def answer(self, request: ModelRequest | None = None) -> Message:
        """Return the model's answer."""
        builder = AnswerBuilder(self.model)
        async for delta in self.client.stream(request or self.request()):
            builder.add(delta)
        return builder.build()

    async def says(
        self, events: Sequence[Chunk | str], request: ModelRequest | None = None
    ) -> Message:
        """Return the message that the client builds from `events`."""
        self.server.will(streaming(events))
        return await self.answer(request)

    async def failure(self, handler: Handler) -> ModelError:
        """Return the error that `handler` causes."""
        self.server.will(handler)
        with pytest.raises(ModelError) as raised:
            await self.answer()
        return raised.value

    @property
    def body(self) -> Mapping[str, Any]:
        """Return the body of the newest request."""
        return self.server.requests[-1].body
