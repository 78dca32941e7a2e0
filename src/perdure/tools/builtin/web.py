"""Tools that send web requests to allowed hosts, and that search the web.

All requests use the pinned transport, which connects only to checked addresses. The HTTP library is
loaded at the first request. A configured secret is inserted only when the request is sent. The
secret is removed from everything in the response.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Meta

from perdure.egress.destinations import Destination, destination_of
from perdure.egress.headers import sendable, without
from perdure.egress.http_types import Fetch, HttpRequest, HttpResponse, fetch_pinned
from perdure.errors import (
    EgressDenied,
    EgressError,
    InvalidArguments,
    ToolDenied,
    ToolError,
    ToolUnavailable,
)
from perdure.secrets.references import names_in
from perdure.secrets.vault import Taint
from perdure.tools.approval import Bound, content_fact
from perdure.tools.builtin.proposal import proposing
from perdure.tools.decorator import tool
from perdure.tools.permissions import Permissions
from perdure.tools.spec import Subject, ToolCall, ToolSpec

MAX_BODY = 1024 * 1024
MAX_RESULTS = 20

Method = Literal["GET", "POST", "PUT", "DELETE"]
_Body = Annotated[str, Meta(max_length=MAX_BODY)]

_canonical = msgspec.json.Encoder(order="deterministic")
_SHOWN_HEADERS = ("content-type", "location", "retry-after", "etag", "last-modified", "link")
_TEXT = ("text/", "application/json", "application/xml", "application/javascript", "application/x-")
_HTTP_ONLY = frozenset(("credential", "credentialRef", "auth", "proxy", "verify", "timeout"))
_SEARCH_ONLY = frozenset(("endpoint", "credential", "credentialRef", "engine", "headers", "url"))


def about_request(args: Mapping[str, object], permissions: Permissions) -> Subject:
    """Show the method and URL of a request to its approver; reject hosts that are not allowed."""
    place = _allowed(args, permissions)
    shown = f"{args.get('method') or 'GET'} {place.url}"
    return Subject(shown, shown, place.host)


def bind_request(call: ToolCall) -> Bound:
    """Return the facts that an approval of a request covers.

    The facts are the method, the whole URL, hashes of the headers and the body, and whether a
    credential is configured for the host.
    """
    args = call.args
    place = _allowed(args, call.permissions)
    headers, body = args.get("headers"), args.get("body")
    given = _canonical.encode(headers) if headers else b""
    data = _data(None if body is None else str(body))
    sent = "none" if data is None else content_fact(data)
    is_signed = place.host in call.permissions.credentials
    facts = {
        "method": str(args.get("method") or "GET"),
        "url": place.url,
        "headers": content_fact(given) if headers else "none",
        "body": sent,
        "credential": "configured" if is_signed else "none",
    }
    credential = ", with the host's credential" if is_signed else ""
    return Bound(facts, f", headers {facts['headers']}, body {sent}{credential}")


def about_search(args: Mapping[str, object], permissions: Permissions) -> Subject:
    """Show the terms of a web search, which the search engine gets, to the approver."""
    host = _endpoint(permissions).host
    shown = f"search for {args['query']!s}"
    return Subject(shown, shown, host)


def bind_search(call: ToolCall) -> Bound:
    """Return the facts that an approval of a web search covers: the search engine."""
    url = _endpoint(call.permissions).url
    return Bound({"search engine": url}, f" at {url}")


def web_tools(fetch: Fetch) -> tuple[ToolSpec, ToolSpec]:
    """Return the tools ``http_request`` and ``web_search``, which send requests with `fetch`."""

    @proposing("egress", about_request, bind=bind_request, is_outside=True, config_only=_HTTP_ONLY)
    @tool(effect="external")
    async def http_request(
        url: Annotated[str, "An https URL of an allowed host.", Meta(min_length=1)],
        method: Annotated[Method, "How to ask."] = "GET",
        headers: Annotated[dict[str, str] | None, "Further headers."] = None,
        body: Annotated[_Body | None, "What is sent along, as text."] = None,
        *,
        call: ToolCall,
    ) -> str:
        """Send one request to a web server. Redirects are not followed; their target is shown."""
        place = _allowed({"url": url}, call.permissions)
        sent = sendable(headers or {})
        credential = call.permissions.credentials.get(place.host)
        if credential is not None:
            authorization = _authorization(call.secrets, credential)
            sent = {**without(sent, ["authorization"]), "authorization": authorization}
        asked = HttpRequest(destination=place, method=method, headers=sent, body=_data(body))
        return _response_text(await _answer(fetch, call.tool, asked))

    @proposing("egress", about_search, bind=bind_search, is_outside=True, config_only=_SEARCH_ONLY)
    @tool(effect="read", on_unknown="retry")
    async def web_search(
        query: Annotated[str, "What to look for.", Meta(min_length=1, max_length=500)],
        max_results: Annotated[int, "How many results.", Meta(ge=1, le=MAX_RESULTS)] = 8,
        *,
        call: ToolCall,
    ) -> str:
        """Search the web. Returns titles, addresses and extracts; http_request reads a page."""
        place = _endpoint(call.permissions)
        joint = "&" if "?" in place.target else "?"
        target = f"{place.target}{joint}{urlencode({'q': query, 'format': 'json'})}"
        credential = call.permissions.search_credential
        sent = {"accept": "application/json"}
        if credential is not None:
            sent["authorization"] = _authorization(call.secrets, credential)
        asked = HttpRequest(
            destination=msgspec.structs.replace(place, target=target),
            headers=sent,
            is_local_open=call.permissions.is_search_local,
        )
        return _results(call.tool, await _answer(fetch, call.tool, asked), max_results)

    return http_request, web_search


def _data(body: str | None) -> bytes | None:
    return None if body is None else body.encode(errors="replace")


http_request, web_search = web_tools(fetch_pinned)


def _allowed(args: Mapping[str, object], permissions: Permissions) -> Destination:
    """Return the destination of a request, if it is allowed.

    Raises: ToolDenied if the destination is not allowed. Raises InvalidArguments if the request
    contains a reference to a secret, because only the configuration is allowed to insert secrets.
    """
    if any(names_in(str(value)) for value in args.values()):
        reason = "secrets are put in by the configuration (credentials), never by the request"
        raise InvalidArguments("http_request", reason)
    try:
        place = destination_of(str(args["url"]))
    except EgressDenied as error:
        raise ToolDenied("http_request", error.reason) from None
    if place.host not in permissions.allowed_domains:
        raise ToolDenied("http_request", "the host is not one of those that are allowed")
    return place


def _endpoint(permissions: Permissions) -> Destination:
    if permissions.search_endpoint is None:
        reason = "no search engine is configured (search_endpoint)"
        raise ToolUnavailable("web_search", reason)
    try:
        return destination_of(
            permissions.search_endpoint, is_local_open=permissions.is_search_local
        )
    except EgressDenied as error:
        raise ToolDenied("web_search", error.reason) from None


def _authorization(secrets: Taint, credential: str) -> str:
    """Return the value of the ``Authorization`` header for `credential`.

    A bare secret becomes a bearer token. The part after ``Basic`` in ``Basic NAME:{{secrets.X}}``
    is base64-encoded, as the scheme requires. All other values are unchanged.
    """
    value = secrets.fill(credential)
    scheme, _, rest = value.partition(" ")
    if scheme.lower() == "basic" and ":" in rest:
        encoded = b64encode(rest.encode()).decode()
        secrets.took(names_in(credential)[0], encoded)
        return f"Basic {encoded}"
    return value if rest else f"Bearer {value}"


async def _answer(fetch: Fetch, tool_name: str, asked: HttpRequest) -> HttpResponse:
    try:
        return await fetch(asked)
    except EgressDenied as error:
        raise ToolDenied(tool_name, error.reason) from None
    except EgressError as error:
        raise ToolError(tool_name, error.reason) from None


def _response_text(answer: HttpResponse) -> str:
    headers = [f"{n}: {answer.headers[n]}" for n in _SHOWN_HEADERS if n in answer.headers]
    kind = answer.headers.get("content-type", "text/plain").lower()
    if not kind.startswith(_TEXT) and b"\0" in answer.body[:8192]:
        body = f"[{len(answer.body)} bytes that are no text]"
    else:
        body = answer.body.decode(errors="replace")
    cut = [f"[cut after {len(answer.body)} bytes]"] if answer.is_cut else []
    return "\n".join((f"status {answer.status}", *headers, "", body, *cut))


def _results(tool_name: str, answer: HttpResponse, count: int) -> str:
    """Return at most `count` results of a search engine that answers in the format of SearXNG."""
    if answer.status != 200:
        raise ToolError(tool_name, f"the search engine answered with status {answer.status}")
    try:
        found = msgspec.json.decode(answer.body, type=dict[str, Any])
        results = cast("list[Any]", found.get("results") or [])
        texts = [_result(cast("Mapping[str, Any]", result)) for result in results[:count]]
    except (ValueError, AttributeError, TypeError):
        raise ToolError(tool_name, "the answer of the search engine cannot be read") from None
    return "\n\n".join(texts) or "[nothing found]"


def _result(result: Mapping[str, Any]) -> str:
    url = str(result.get("url", ""))
    address = url if urlsplit(url).scheme in ("http", "https") else "[no address]"
    parts = (str(result.get("title", "")).strip(), address, str(result.get("content", "")).strip())
    return "\n".join(part for part in parts if part)
