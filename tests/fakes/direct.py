"""A client that calls an ASGI application in its own process, without a connection.

A request over a connection takes about twice the CPU time, most of it in the client.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

Messages = dict[str, Any]


class Answer(NamedTuple):
    """What the application sent: the status, the headers and the content as text."""

    status: int
    headers: dict[str, str]
    text: str


class DirectClient:
    """Sends requests with `headers` to `application`."""

    def __init__(self, application: Any, headers: Mapping[str, str]) -> None:
        self._application = application
        self.headers = dict(headers)

    async def answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        body: object,
        until: str | None = None,
    ) -> Answer:
        """Send a request; end the connection when the answer contains `until`."""
        content = b"" if body is None else json.dumps(body).encode()
        headers = {"host": "127.0.0.1", "content-length": str(len(content)), **self.headers}
        if content:
            headers["content-type"] = "application/json"
        exchange = _Exchange(content, None if until is None else until.encode())
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": urlencode(query, doseq=True).encode(),
            "headers": [(key.lower().encode(), text.encode()) for key, text in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        await self._application(scope, exchange.receive, exchange.send)
        return exchange.answer()


class _Exchange:
    def __init__(self, content: bytes, until: bytes | None) -> None:
        self._request: Messages | None = {"type": "http.request", "body": content}
        self._until = until
        self._status = 0
        self._headers: dict[str, str] = {}
        self._received = bytearray()
        self._is_over = asyncio.Event()

    async def receive(self) -> Messages:
        if self._request is not None:
            request, self._request = self._request, None
            return request
        await self._is_over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Messages) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = message["headers"]
            self._headers = {key.decode().lower(): text.decode() for key, text in headers}
        elif not self._is_over.is_set():
            self._received += message.get("body", b"")
            if not message.get("more_body") or (self._until and self._until in self._received):
                self._is_over.set()

    def answer(self) -> Answer:
        return Answer(self._status, self._headers, self._received.decode(errors="replace"))
