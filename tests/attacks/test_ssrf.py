"""No request reaches internal hosts: by its URL, by name resolution, or by a response.

The corpus has one URL per line; ``\\t`` and ``\\n`` in a URL stand for a tab and a line feed. Only
``https://allowed.example`` is allowed. A server on loopback counts the connections that would reach
an internal host.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from perdure.egress.destinations import destination_of
from perdure.egress.fetch import fetch
from perdure.egress.http_types import HttpRequest, HttpResponse
from perdure.errors import EgressDenied, EgressError
from perdure.tools.builtin.web import web_tools
from perdure.tools.execution import ToolRun
from perdure.tools.permissions import Permissions
from tests.fakes.dns_server import Answers, DnsServer, addresses_from
from tests.fakes.samples import case
from tests.fakes.tool_calls import Tools
from tests.fakes.web_server import Response, WebServer

CORPUS = Path(__file__).with_name("corpora") / "ssrf.txt"
URLS = [
    line.replace("\\t", "\t").replace("\\n", "\n")
    for line in CORPUS.read_text(encoding="utf-8").split("\n")[:-1]
]
HOST = "allowed.example"
INSIDE = (
    *("127.0.0.1", "10.0.0.1", "169.254.169.254", "192.168.1.1", "0.0.0.0", "100.64.0.1"),
    *("::1", "fe80::1", "fd00:ec2::254", "fec0::1", "ff02::1", "::ffff:127.0.0.1"),
    *("64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:4136:e378:8000:63bf:80ff:fffe"),
    *("224.0.0.1", "198.18.0.1", "240.0.0.1"),
)


class Way:
    """A tool with a real network stack and the test's own name server."""

    def __init__(self, names: DnsServer) -> None:
        self.names = names

    async def fetch(self, asked: HttpRequest) -> HttpResponse:
        return await fetch(asked, resolve=self._resolve)

    async def _resolve(self, host: str, port: int) -> list[str]:
        return await addresses_from(self.names.port, host)

    async def ask(self, url: str, **args: object) -> ToolRun:
        request, _ = web_tools(self.fetch)
        tools = Tools(Path(), Permissions(allowed_domains=(HOST,)))
        return await tools.run(request, url=url, **args)


async def way_with(answers: Answers) -> Way:
    names = DnsServer(answers)
    await names.start()
    return Way(names)


@pytest.fixture
async def way() -> AsyncGenerator[Way]:
    made = await way_with(lambda name, times: ["127.0.0.1"])
    yield made
    made.names.close()


def test_list_of_attacking_urls_has_enough_urls() -> None:
    assert len(set(URLS)) >= 250


async def test_every_internal_url_in_the_list_of_attacks_is_refused(way: Way) -> None:
    for url in URLS:
        with case(url):
            run = await way.ask(url)
            assert run.outcome == "refused"
            assert run.error_code == "tool_denied"
            assert way.names.asked == []
            said = run.output.text.removeprefix("http_request: ")
            for secret in ("127", "169.254", "passwd", "evil", "user:pw", "docker"):
                assert secret not in said


@pytest.mark.parametrize("address", INSIDE)
@pytest.mark.parametrize("others", [(), ("93.184.216.34",), ("93.184.216.34", "2606:4700::1111")])
async def test_host_name_that_resolves_to_an_internal_address_is_refused(
    address: str, others: tuple[str, ...]
) -> None:
    # Scenario 9.30 of the specification.
    way = await way_with(lambda name, times: [*others, address])
    run = await way.ask(f"https://{HOST}/")
    way.names.close()
    assert run.outcome == "refused"
    assert way.names.asked == [HOST]
    assert address not in run.output.text


async def test_host_name_without_an_address_is_an_error() -> None:
    way = await way_with(lambda name, times: [])
    run = await way.ask(f"https://{HOST}/")
    way.names.close()
    assert (run.outcome, run.error) == ("error", "http_request: no connection could be made")


async def test_rebinding_host_name_is_resolved_once_per_request() -> None:
    """The name has a public address at the first resolution, and an internal one afterwards."""
    async with WebServer(lambda r: Response(body=b"inside")) as server:
        way = await way_with(lambda name, times: ["192.0.43.8"] if times == 1 else ["127.0.0.1"])
        destination = destination_of(f"https://{HOST}:{server.port}/")
        with pytest.raises(EgressError):  # no server there, or no route
            await way.fetch(HttpRequest(destination=destination, timeout_s=0.5))
        assert way.names.asked == [HOST]
        with pytest.raises(EgressDenied):  # the second request resolves again, and is denied
            await way.fetch(HttpRequest(destination=destination, timeout_s=60))
        way.names.close()
    assert server.connections == 0


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "location",
    ["http://127.0.0.1/", "//169.254.169.254/", "/inside", "file:///etc/passwd", "https://[::1]/"],
)
async def test_redirect_is_returned_but_not_followed(status: int, location: str) -> None:
    # Scenario 9.30 of the specification.
    moved = Response(status, {"Location": location, "Refresh": f"0; url={location}"})
    async with WebServer(lambda r: moved) as server:
        place = destination_of(f"http://127.0.0.1:{server.port}/", is_local_open=True)
        answer = await fetch(HttpRequest(destination=place, is_local_open=True))
    assert (answer.status, answer.headers["location"]) == (status, location)
    assert server.connections == 1


async def test_header_set_by_the_model_cannot_change_the_host_of_a_request() -> None:
    async with WebServer(lambda r: Response()) as server:
        place = f"http://127.0.0.1:{server.port}/"

        async def local(asked: HttpRequest) -> HttpResponse:
            there = destination_of(place, is_local_open=True)
            return await fetch(
                HttpRequest(
                    destination=there, headers=asked.headers, body=asked.body, is_local_open=True
                )
            )

        request, _ = web_tools(local)
        tools = Tools(Path(), Permissions(allowed_domains=(HOST,)))
        headers = {
            "Host": "169.254.169.254",
            "X-Forwarded-Host": "evil.test",
            "Transfer-Encoding": "chunked",
            "Content-Length": "0",
            "Connection": "upgrade",
            "X-A": "1\r\nHost: evil.test",
            "X-B\r\nHost": "evil.test",
            "Metadata-Flavor": "Google",
            "X-Fine": "yes",
        }
        run = await tools.run(
            request, url=f"https://{HOST}/", method="POST", headers=headers, body="a"
        )
    assert run.outcome == "ok"
    sent = server.asked[0].headers
    assert sent["host"].startswith("127.0.0.1")
    assert sent["x-fine"] == "yes"
    assert sent["content-length"] == "1"
    for name in ("x-forwarded-host", "metadata-flavor", "x-a", "transfer-encoding"):
        assert name not in sent
