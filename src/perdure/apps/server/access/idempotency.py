"""Requests with an ``Idempotency-Key``: repeats have no further effect and get the same answer.

For each request, the log of the session contains two notes: one with the key, committed before the
request takes effect, and one with the answer. If two requests with the same key arrive
concurrently, even on two servers, the commit of the first note decides which of them runs. When the
session is erased, both notes about the request are erased. A store keeps idempotency keys for at
least 30 days.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable, Container, Mapping
from http import HTTPStatus
from typing import Any, cast
from weakref import WeakValueDictionary

import msgspec
from litestar import Request
from litestar.datastructures import MutableScopeHeaders
from litestar.enums import ScopeType
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, HTTPResponseStartEvent, Message, Receive, Scope, Send

from perdure.apps.server.access.sign_in import COOKIE
from perdure.apps.server.problems import Problem, Replayed
from perdure.client.session import Session
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.notes import Note

HEADER = "idempotency-key"
CLAIM = "perdure.api_request"
ANSWER = "perdure.api_answer"

KEYED = "is_keyed"
"""The option that says if a route accepts idempotency keys; by default, routes of a session do."""

_STATE = "perdure_keyed"
_WRITES = frozenset(("POST", "PUT", "PATCH", "DELETE"))
_REPEATABLE = _WRITES - {"POST"}
LONGEST = 200
"""Maximum length of an idempotency key."""

_LEAST_OF_VISITOR = 16
"""Minimum length of a visitor's key: the token is public, so only the key makes the new session's
id secret."""

_POLLS, _POLL_S = 20, 0.1
"""Number and interval of attempts to read an answer that another process computes."""


class KeyedRequest:
    """One request with an idempotency key, from its arrival to its answer.

    If an earlier request with this key got no answer because the server process was killed,
    `unknown_since` is the seq of the first note of that request. If the earlier request took
    effect, its entries come after its first note.
    """

    def __init__(self, method: str, path: str, key: str, token: str, presented: str) -> None:
        self.unknown_since: int | None = None
        self._method = method
        self._path = path
        self.name = f"api:{token}:{key}"
        self._secret = presented.encode(errors="replace")
        self._digest = ""
        self._session: Session | None = None
        self._claim: Entry | None = None
        self._is_over = False

    @property
    def session_id(self) -> str:
        """The id of the session that this request creates.

        Only the caller of the request can compute this id, because the id depends on the caller's
        token.
        """
        made = hmac.digest(self._secret, self.name.encode(), hashlib.sha256)
        return f"k{made.hex()[:40]}"

    def read(self, query: bytes, body: bytes) -> None:
        """Read the body, and compute the digest of the request."""
        asked = (self._method, self._path, query, body)
        self._digest = hashlib.sha256(msgspec.msgpack.encode(asked)).hexdigest()

    async def claim(self, session: Session, *, is_repeatable: bool = False) -> None:
        """Record the request in `session`, before the request takes effect.

        Durable: the change is stored when this call returns. With `is_repeatable`, an unknown
        outcome sets `unknown_since` instead of raising an error.
        Raises: Replayed if the request was answered before; IdempotencyMismatch if the key was used
        for another request; Problem 409 if it is unknown whether the request took effect.
        """
        if self._claim is not None:
            return
        note = Note(CLAIM, {"digest": self._digest})
        appended = await session.append_many([note], idempotency_key=self.name)
        self._session, self._claim = session, appended[0]
        if not appended.is_replay:
            return
        answer = await self._answer()
        if answer is None:
            if not is_repeatable and self._method not in _REPEATABLE:
                self._is_over = True  # else the record of this refusal would allow another try
                raise Problem(
                    409, "outcome_unknown", "the server stopped during this request: check if "
                    "it took effect, and if not, send it again with another key"
                )  # fmt: skip
            self.unknown_since = self._claim.seq
        elif not answer.get("is_refused"):
            self._is_over = True
            raise Replayed(answer)

    async def answered(self, start: Message, body: bytes) -> Message:
        """Record the answer.

        Returns the start of the answer, whose ``ETag`` is the head after the answer was recorded.

        If the request was rejected, a repeated request with the same key runs again, because the
        rejected request had no effect.
        """
        status = cast("HTTPResponseStartEvent", start)["status"]
        session, claim = self._session, self._claim
        is_failure = status >= HTTPStatus.INTERNAL_SERVER_ERROR
        if session is None or claim is None or self._is_over or is_failure:
            return start
        headers = MutableScopeHeaders.from_message(start)
        answer: dict[str, object] = {"is_refused": True}
        if status < HTTPStatus.BAD_REQUEST:
            answer = {
                "status": status,
                "media_type": headers["content-type"],
                "body": body.decode(),
            }
        entry = await session.note(Note(ANSWER, answer), about=claim.id)
        if "etag" in headers:
            headers["etag"] = f'"{entry.seq}"'
        return start

    async def _answer(self) -> Mapping[str, Any] | None:
        """Return the newest answer to the recorded request; None if no answer arrives in time."""
        assert self._session is not None
        assert self._claim is not None
        for _ in range(_POLLS):
            found = None
            async for entry in self._session.notes(ANSWER, about=self._claim.id):
                found = cast("Note", body_of(entry)).data
            if found is not None:
                return found
            await asyncio.sleep(_POLL_S)
        return None


Locks = WeakValueDictionary[str, asyncio.Lock]
"""The locks of those idempotency keys whose requests a server is processing."""


class Idempotency(ASGIMiddleware):
    """Processes requests with the same key one after the other, and records their answers.

    `locks_of` returns the locks of the server that a request was sent to.
    """

    scopes = (ScopeType.HTTP,)
    exclude_opt_key = "is_open"

    def __init__(self, locks_of: Callable[[Scope], Locks]) -> None:
        self._locks_of = locks_of

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        """Serve one request."""
        request = Request[Any, Any, Any](scope)
        key = request.headers.get(HEADER)
        if key is None or request.method not in _WRITES:
            await next_app(scope, receive, send)
            return
        _check(request, key)
        token = request.user.token
        lock = self._locks_of(scope).setdefault(f"{token}:{key}", asyncio.Lock())
        async with lock:
            keyed = KeyedRequest(request.method, scope["path"], key, token, presented(request))
            request.state[_STATE] = keyed
            await next_app(scope, receive, _recording(keyed, send))


def presented(request: Request[Any, Any, Any]) -> str:
    """Return the token that `request` presents."""
    bearer = request.headers.get("authorization", "").partition(" ")[2].strip()
    return bearer or request.cookies.get(COOKIE, "")


async def keyed_of(request: Request[Any, Any, Any]) -> KeyedRequest | None:
    """Return the `KeyedRequest` of `request`, with its digest; None if the request has no key."""
    keyed: KeyedRequest | None = request.state.get(_STATE)
    if keyed is not None:
        keyed.read(request.scope["query_string"], await request.body())
    return keyed


def keeps_keys(options: Mapping[str, Any], path_parameters: Container[str]) -> bool:
    """Whether requests to a route with these `options` may have an idempotency key."""
    return options.get(KEYED, "session_id" in path_parameters)


def _check(request: Request[Any, Any, Any], key: str) -> None:
    """Raises: Problem 400 if the idempotency key is invalid, or not supported by the route."""
    if not (0 < len(key) <= LONGEST and key.isascii() and key.isprintable()):
        detail = f"an Idempotency-Key has 1 to {LONGEST} printable ASCII characters"
        raise Problem(400, "idempotency_key_invalid", detail)
    if request.user.is_visitor and len(key) < _LEAST_OF_VISITOR:
        detail = f"a visitor needs a random key of at least {_LEAST_OF_VISITOR} characters"
        raise Problem(400, "idempotency_key_invalid", detail)
    if not keeps_keys(request.route_handler.opt, request.path_params):
        detail = "this request accepts no Idempotency-Key; send the request without it"
        raise Problem(400, "idempotency_unsupported", detail)


def _recording(keyed: KeyedRequest, send: Send) -> Send:
    """Return a `send` function that records the whole answer before it sends the first byte."""
    held: list[Message] = []

    async def recording(message: Message) -> None:
        held.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            body = b"".join(each["body"] for each in held if each["type"] == "http.response.body")
            held[0] = await keyed.answered(held[0], body)
            for each in held:
                await send(each)

    return recording
