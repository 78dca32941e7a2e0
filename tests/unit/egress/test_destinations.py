"""Strict parsing of URLs."""

from __future__ import annotations

import pytest

from perdure.egress.destinations import Destination, destination_of, host_name
from perdure.errors import EgressDenied


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://Example.com", Destination("https", "example.com", 443, "/")),
        ("https://example.com./a?b=c#d", Destination("https", "example.com", 443, "/a?b=c")),
        ("https://example.com:8443?q", Destination("https", "example.com", 8443, "/?q")),
        ("https://1.1.1.1/x", Destination("https", "1.1.1.1", 443, "/x")),
        ("https://[2606:4700::1111]:1/", Destination("https", "2606:4700::1111", 1, "/")),
        ("https://xn--bcher-kva.example/", Destination("https", "xn--bcher-kva.example", 443, "/")),
        (
            "https://example.com/ü?q=ä b"[:-2],
            Destination("https", "example.com", 443, "/%C3%BC?q=%C3%A4"),
        ),
        ("https://example.com/%41", Destination("https", "example.com", 443, "/%41")),
    ],
)
def test_url_is_split_into_destination(url: str, found: Destination) -> None:
    assert destination_of(url) == found


def test_url_of_a_destination_is_rebuilt_from_its_parts() -> None:
    assert destination_of("HTTPS://EXAMPLE.com:443/a").url == "https://example.com/a"
    assert destination_of("https://[2606:4700::1111]:1/").url == "https://[2606:4700::1111]:1/"


@pytest.mark.parametrize(
    "url", ["", "x", "//example.com", "file:///etc/passwd", "ftp://example.com", "https:///a"]
)
def test_non_https_url_is_rejected(url: str) -> None:
    with pytest.raises(EgressDenied):
        destination_of(url)


def test_http_and_local_network_need_configuration() -> None:
    with pytest.raises(EgressDenied, match="only https"):
        destination_of("http://example.com")
    found = destination_of("http://localhost:8080/search", is_local_open=True)
    assert found == Destination("http", "localhost", 8080, "/search")


def test_error_for_a_denied_url_contains_no_part_of_it() -> None:
    with pytest.raises(EgressDenied) as refused:
        destination_of("https://alice:hunter2@wiki.corp/plans")
    assert not {w for w in ("alice", "hunter2", "wiki", "plans") if w in str(refused.value)}


def test_configured_host_is_normalized() -> None:
    assert host_name("API.Example.com.") == "api.example.com"
    with pytest.raises(EgressDenied):
        host_name("*.example.com")
