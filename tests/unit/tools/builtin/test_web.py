"""Web requests and searches: sent data, returned data, and secrets that are never sent."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from perdure.egress.http_types import HttpRequest, HttpResponse
from perdure.errors import EgressError, ToolDenied, ToolUnavailable
from perdure.tools.builtin.web import about_request, about_search, web_tools
from perdure.tools.execution import FROM_OUTSIDE, ToolRun
from perdure.tools.permissions import Permissions
from tests.fakes.tool_calls import Tools

SECRET = "t0ps3cret-value"
ALLOWED = Permissions(
    allowed_domains=("api.example.com",), credentials={"api.example.com": "{{secrets.API}}"}
)
SEARCH = Permissions(search_endpoint="https://search.example.com/search?language=en")


class Web:
    """A web client that records requests and always returns the same answer."""

    def __init__(self, answer: HttpResponse | None = None) -> None:
        self.asked: list[HttpRequest] = []
        self._answer = answer or HttpResponse(200, {"content-type": "text/plain"}, b"hello")

    async def fetch(self, asked: HttpRequest) -> HttpResponse:
        self.asked.append(asked)
        return self._answer


async def request(web: Web, permissions: Permissions = ALLOWED, **args: Any) -> ToolRun:
    tool, _ = web_tools(web.fetch)
    return await Tools(Path(), permissions, {"API": SECRET}).run(tool, **args)


async def search(web: Web, permissions: Permissions = SEARCH, **args: Any) -> ToolRun:
    _, tool = web_tools(web.fetch)
    return await Tools(Path(), permissions, {"API": SECRET}).run(tool, **args)


async def test_answer_is_marked_as_untrusted_content() -> None:
    web = Web(HttpResponse(302, {"location": "https://x.test/", "set-cookie": "a=b"}, b"moved"))
    run = await request(web, url="https://api.example.com/a")
    assert run.output.text == f"{FROM_OUTSIDE}\nstatus 302\nlocation: https://x.test/\n\nmoved"


async def test_configured_credential_replaces_a_credential_from_the_model() -> None:
    web = Web()
    headers = {"AUTHORIZATION": "Bearer mine", "X-A": "1", "Host": "evil.test"}
    await request(web, url="https://api.example.com/", headers=headers)
    assert dict(web.asked[0].headers) == {"X-A": "1", "authorization": f"Bearer {SECRET}"}


async def test_basic_credential_is_removed_from_the_answer() -> None:
    encoded = base64.b64encode(f"me:{SECRET}".encode()).decode()
    web = Web(HttpResponse(200, {}, f"you sent {encoded} and {SECRET}".encode()))
    permissions = Permissions(
        allowed_domains=("a.com",), credentials={"a.com": "Basic me:{{secrets.API}}"}
    )
    run = await request(web, permissions, url="https://a.com/")
    assert web.asked[0].headers["authorization"] == f"Basic {encoded}"
    assert encoded not in run.output.text
    assert SECRET not in run.output.text


async def test_missing_secret_error_says_where_to_store_it() -> None:
    tool, _ = web_tools(Web().fetch)
    run = await Tools(Path(), ALLOWED).run(tool, url="https://api.example.com/")
    assert run.error_code == "secret_missing"


async def test_secret_reference_of_model_is_rejected() -> None:
    web = Web()
    for args in (
        {"url": "https://api.example.com/?{{secrets.API}}"},
        {"url": "https://api.example.com/", "body": "{{ secrets.API }}"},
        {"url": "https://api.example.com/", "headers": {"X-A": "{{secrets.API}}"}},
    ):
        with pytest.raises(Exception, match="never by the request"):
            about_request({"method": "GET", **args}, ALLOWED)
    assert web.asked == []


@pytest.mark.parametrize(
    "url", ["https://example.com/", "https://api.example.com.evil.test/", "http://api.example.com/"]
)
async def test_only_allowed_hosts_are_contacted(url: str) -> None:
    web = Web()
    run = await request(web, url=url)
    assert (run.outcome, web.asked) == ("refused", [])


async def test_binary_answer_is_not_shown() -> None:
    web = Web(HttpResponse(200, {"content-type": "image/png"}, b"\x89PNG\0"))
    assert (
        "[5 bytes that are no text]"
        in (await request(web, url="https://api.example.com/")).output.text
    )


async def test_reason_of_a_failed_request_omits_the_address() -> None:
    async def fetch(asked: HttpRequest) -> HttpResponse:
        raise EgressError("no connection could be made")

    tool, _ = web_tools(fetch)
    run = await Tools(Path(), Permissions(allowed_domains=("a.com",))).run(
        tool, url="https://a.com/"
    )
    assert run.error == "http_request: no connection could be made"


def test_request_is_granted_by_method_and_whole_url() -> None:
    subject = about_request({"url": "https://api.example.com/x?y", "method": "PUT"}, ALLOWED)
    assert subject.shown == "PUT https://api.example.com/x?y"
    assert subject.grant == "PUT https://api.example.com/x?y"


async def test_search_uses_configured_engine() -> None:
    body = b"""{"results": [
        {"title": " One ", "url": "https://one.test/", "content": "first"},
        {"title": "Two", "url": "javascript:alert(1)", "content": null},
        {"title": "Three", "url": "https://three.test/"}]}"""
    web = Web(HttpResponse(200, {}, body))
    run = await search(web, query="a b&c", max_results=2, endpoint="https://evil.test")
    assert web.asked[0].destination.url == (
        "https://search.example.com/search?language=en&q=a+b%26c&format=json"
    )
    assert run.output.text == (
        f"{FROM_OUTSIDE}\nOne\nhttps://one.test/\nfirst\n\nTwo\n[no address]\nNone"
    )


async def test_search_engine_can_require_a_credential() -> None:
    permissions = Permissions(
        search_endpoint="https://s.example.com", search_credential="Token {{secrets.API}}"
    )
    web = Web(HttpResponse(200, {}, b'{"results": []}'))
    run = await search(web, permissions, query="x")
    assert web.asked[0].headers["authorization"] == f"Token {SECRET}"
    assert run.output.text.endswith("[nothing found]")


@pytest.mark.parametrize("body", [b"", b"[]", b'{"results": [1]}', b"<html>"])
async def test_response_without_valid_results_is_an_error(body: bytes) -> None:
    run = await search(Web(HttpResponse(200, {}, body)), query="x")
    assert run.error == "web_search: the answer of the search engine cannot be read"


async def test_error_status_of_search_engine_is_reported() -> None:
    run = await search(Web(HttpResponse(403, {}, b"no")), query="x")
    assert run.error == "web_search: the search engine answered with status 403"


def test_search_is_unavailable_without_configured_engine() -> None:
    with pytest.raises(ToolUnavailable, match="search_endpoint"):
        about_search({"query": "x"}, Permissions())


def test_error_for_a_denied_url_contains_no_part_of_it() -> None:
    with pytest.raises(ToolDenied) as refused:
        about_request({"url": "https://u:pw@10.0.0.1/x"}, ALLOWED)
    assert "10.0" not in str(refused.value)
    assert "pw" not in str(refused.value)
