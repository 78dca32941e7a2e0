"""`perdure.record`: record the calls of an existing OpenAI or Anthropic client as a session.

The method `send` of the client's HTTP client is wrapped. The wrapper records every model call, sync
or async, streamed or not, and the program gets its responses unchanged.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Self, cast

from perdure.client.lookup.store_files import default_address
from perdure.client.open import open as open_store
from perdure.client.recording.calls import (
    Api,
    RecordedResponse,
    api_of,
    read_response,
    request_of,
    response_of,
)
from perdure.client.recording.recorder import Recorder
from perdure.client.recording.stream import StreamedResponse
from perdure.client.store import Store
from perdure.client.sync.handles import Store as BlockingStore
from perdure.client.sync.portal import Portal
from perdure.errors import WrongArgument
from perdure.session.argument_checks import takes_declared
from perdure.session.ids import EntryId
from perdure.stores.access.cancellation import finished

_MARK = "_perdure_recording"
_BAD = 400
"""HTTP statuses from this number on are failures."""
_WHOLE_BYTES = 64 * 1024 * 1024
"""A response that is not streamed is recorded up to this size."""


@takes_declared
def record(
    client: object,
    store: Store | BlockingStore | None = None,
    *,
    session_id: str | None = None,
    title: str | None = None,
    subject: str | None = None,
) -> Recording:
    """Record the model calls of an OpenAI or Anthropic `client` in a session of `store`.

    The default `store` is ``$PERDURE_STORE``, or a file in the user data directory. The program
    uses the client as before. Chat completions, responses and messages are recorded, streamed or
    not. If a request repeats earlier messages, these messages are not stored again. If a request
    changes an earlier message, the session branches. A later recording with the same `session_id`
    continues the session. An async client accepts a store of `perdure.open` or of
    `perdure.blocking.open`; a sync client accepts a store of `perdure.blocking.open`. Headers, keys
    and the tools' definitions are not stored.
    Durable: each request is stored before it is sent, and each answer is stored after the program
    has read it.
    Shape: the returned object is the recording; `close` or the end of a ``with`` block stops it.
    Copies of the client that share its connections (`with_options`) are recorded, too.
    Raises: WrongArgument for an unsupported client, and for a client that is already recorded.
    """
    http: Any = getattr(client, "_client", None)  # neither library has a public name for it
    send = getattr(http, "send", None)
    is_known = type(client).__module__.partition(".")[0] in ("openai", "anthropic")
    if not callable(send) or not is_known:
        reason = f"record takes a client of openai or anthropic, not {type(client).__name__}"
        raise WrongArgument(reason, argument="client")
    if getattr(http, _MARK, False):
        raise WrongArgument("this client is being recorded: close the recording first")
    is_async = inspect.iscoroutinefunction(send)
    if isinstance(store, Store) and not is_async:
        reason = f"{type(client).__name__} is not async: give a store of perdure.blocking.open"
        raise WrongArgument(reason, argument="store")
    portal = Portal() if store is None else None
    if isinstance(store, Store):
        inner = store
    elif store is not None:
        inner, portal = store.asynchronous, store.portal
    else:
        assert portal is not None
        inner = _default_store(portal)
    recording = Recording(http, Recorder(inner, session_id, title, subject), portal)
    http.send = recording.async_send if is_async else recording.sync_send
    vars(http)[_MARK] = True
    return recording


def _default_store(portal: Portal) -> Store:
    """Open the default store on the loop of `portal`; it is closed when the program ends."""

    async def opened() -> Store:
        return await open_store(default_address(os.environ, sys.platform))

    store = portal.call(opened())
    portal.closes(store.close)
    return store


class Recording:
    """The recording of a client's calls. `session_id` is None before the first call."""

    def __init__(self, http: Any, recorder: Recorder, portal: Portal | None) -> None:
        self._http = http
        self._recorder = recorder
        self._portal = portal
        self._send: Callable[..., Any] = http.send

    @property
    def session_id(self) -> str | None:
        """The id of the session."""
        session = self._recorder.session
        return None if session is None else session.id

    def close(self) -> None:
        """Stop recording.

        The client continues to work, and a response in progress is still recorded.
        """
        own = cast("dict[str, Any]", vars(self._http))
        if own.pop(_MARK, False):
            own.pop("send", None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # ------------------------------------------------------------ in place of the client's `send`

    def sync_send(self, request: Any, *arguments: Any, **options: Any) -> Any:
        """Send `request` with the client's own method, and record the call."""
        api = _api_in(request)
        if api is None:
            return self._send(request, *arguments, **options)
        call = _Call(self._recorder, api)
        self._call(call.begin(request.read()))
        try:
            response = self._send(request, *arguments, **options)
        except BaseException as error:
            self._told(call.fail(f"{type(error).__name__}: {error}"))
            raise
        if response.is_closed:
            self._told(call.whole(response.status_code, response.content))
        else:
            _record_sync(response, call, self._told)
        return response

    async def async_send(self, request: Any, *arguments: Any, **options: Any) -> Any:
        """Send `request` with the client's own method, and record the call."""
        api = _api_in(request)
        if api is None:
            return await self._send(request, *arguments, **options)
        call = _Call(self._recorder, api)
        await self._call_async(call.begin(await request.aread()))
        try:
            response = await self._send(request, *arguments, **options)
        except BaseException as error:
            await self._told_async(call.fail(f"{type(error).__name__}: {error}"))
            raise
        if response.is_closed:
            await self._told_async(call.whole(response.status_code, response.content))
        else:
            _record_async(response, call, self._told_async)
        return response

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._portal is not None  # `record` refuses a sync client without one
        self._portal.call(work)

    def _told(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the recording coroutine `work`; if it fails, the program still gets the response."""
        try:
            self._call(work)
        except Exception as error:  # noqa: BLE001 - see above
            work.close()
            _warn(error)

    async def _call_async(self, work: Coroutine[Any, Any, None]) -> None:
        if self._portal is None:
            await work
        else:
            await asyncio.to_thread(self._portal.call, work)

    async def _told_async(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the recording coroutine `work` to its end, even if cancelled; warn of its errors."""
        try:
            await finished(self._call_async(work))
        except Exception as error:  # noqa: BLE001 - see above
            work.close()
            _warn(error)


class _Call:
    """One model call: records its messages, then either its answer or its failure."""

    def __init__(self, recorder: Recorder, api: Api) -> None:
        self._recorder = recorder
        self._api: Api = api
        self._after: EntryId | None = None
        self._is_request_known = False
        self.is_over = False
        self.streamed = StreamedResponse(api)
        self.body = bytearray()
        self._raw = bytearray()
        self.is_reading = False  # the response may close itself then

    async def begin(self, body: bytes) -> None:
        """Record the request with this `body`."""
        request = request_of(self._api, body)
        if request is not None:
            self._is_request_known = True
            self._after = await self._recorder.begin(request)

    async def whole(self, status: int, body: bytes) -> None:
        """Record the response with this `body`."""
        if status >= _BAD:
            await self.fail(f"HTTP {status}: {body[:1_000].decode('utf-8', 'replace')}")
            return
        await self._finish(response_of(self._api, body), is_complete=True)

    async def ended(self, response: Any) -> None:
        """Record the part of the streamed `response` that was read."""
        raw, self._raw = bytes(self._raw), bytearray()
        if raw:  # decoded as the headers of `response` say
            same: Any = type(response)(200, headers=response.headers, content=raw)
            self.feed(same.content)
        if response.status_code >= _BAD:
            await self.whole(response.status_code, bytes(self.body))
        elif self.streamed.fields:
            found = read_response(self._api, self.streamed.fields)
            await self._finish(found, is_complete=self.streamed.is_complete)
        elif self.streamed.error is not None:
            await self.fail(self.streamed.error)
        else:
            found = response_of(self._api, bytes(self.body))
            await self._finish(found, is_complete=found is not None)

    async def fail(self, reason: str) -> None:
        """Record that the call failed."""
        if self._is_request_known and not self.is_over:
            self.is_over = True
            await self._recorder.fail(self._after, reason)

    async def _finish(self, response: RecordedResponse | None, *, is_complete: bool) -> None:
        if response is None:
            await self.fail("the response is not JSON, or was not read")
        elif self._is_request_known and not self.is_over:
            error = self.streamed.error
            if error is not None:
                await self.fail(error)
            if response.message is not None or error is None:
                self.is_over = True
                await self._recorder.finish(self._after, response, is_complete=is_complete)

    def feed(self, data: bytes) -> None:
        """Read the next bytes of the response."""
        self.streamed.feed(data)
        if len(self.body) < _WHOLE_BYTES:
            self.body += data

    def feed_raw(self, data: bytes) -> None:
        """Buffer the next bytes of a response that the program reads undecoded."""
        if len(self._raw) < _WHOLE_BYTES:
            self._raw += data


def _record_sync(
    response: Any, call: _Call, told: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    """Record the bytes of `response` as the program reads them, and the end of the response."""
    decoded, as_sent, close = response.iter_bytes, response.iter_raw, response.close

    def end() -> None:
        if not call.is_over:
            told(call.ended(response))

    def close_recorded() -> None:
        close()
        if not call.is_reading:
            end()

    def iter_bytes(chunk_size: int | None = None) -> Iterator[bytes]:
        return _decoded(decoded(chunk_size), call, end)

    def iter_raw(chunk_size: int | None = None) -> Iterator[bytes]:
        return _as_sent(as_sent(chunk_size), call, end)

    response.iter_bytes = iter_bytes
    response.iter_raw = iter_raw
    response.close = close_recorded


def _decoded(pieces: Iterator[bytes], call: _Call, end: Callable[[], None]) -> Iterator[bytes]:
    while True:
        call.is_reading = True
        try:
            data: bytes | None = next(pieces, None)
        except BaseException:
            end()
            raise
        finally:
            call.is_reading = False
        if data is None:
            break
        call.feed(data)
        yield data
    end()


def _as_sent(pieces: Iterator[bytes], call: _Call, end: Callable[[], None]) -> Iterator[bytes]:
    if call.is_reading:  # `iter_bytes` reads and decodes them
        yield from pieces
        return
    try:
        for data in pieces:
            call.feed_raw(data)
            yield data
    finally:
        end()


def _record_async(
    response: Any, call: _Call, told: Callable[[Coroutine[Any, Any, None]], Awaitable[None]]
) -> None:
    """Record the bytes of `response` as the program reads them, and the end of the response."""
    decoded, as_sent, close = response.aiter_bytes, response.aiter_raw, response.aclose

    async def end() -> None:
        if not call.is_over:
            await told(call.ended(response))

    async def close_recorded() -> None:
        await close()
        if not call.is_reading:
            await end()

    def aiter_bytes(chunk_size: int | None = None) -> AsyncIterator[bytes]:
        return _adecoded(decoded(chunk_size), call, end)

    def aiter_raw(chunk_size: int | None = None) -> AsyncIterator[bytes]:
        return _aas_sent(as_sent(chunk_size), call, end)

    response.aiter_bytes = aiter_bytes
    response.aiter_raw = aiter_raw
    response.aclose = close_recorded


async def _adecoded(
    pieces: AsyncIterator[bytes], call: _Call, end: Callable[[], Awaitable[None]]
) -> AsyncIterator[bytes]:
    while True:
        call.is_reading = True
        try:
            data: bytes | None = await anext(pieces, None)
        except BaseException:
            await end()
            raise
        finally:
            call.is_reading = False
        if data is None:
            break
        call.feed(data)
        yield data
    await end()


async def _aas_sent(
    pieces: AsyncIterator[bytes], call: _Call, end: Callable[[], Awaitable[None]]
) -> AsyncIterator[bytes]:
    if call.is_reading:  # `aiter_bytes` reads and decodes them
        async for data in pieces:
            yield data
        return
    try:
        async for data in pieces:
            call.feed_raw(data)
            yield data
    finally:
        await end()


def _api_in(request: Any) -> Api | None:
    return api_of(request.url.path) if request.method == "POST" else None


def _warn(error: Exception) -> None:
    warnings.warn(f"perdure could not record a model's answer: {error}", stacklevel=4)
