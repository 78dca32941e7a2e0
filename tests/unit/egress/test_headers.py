"""Selection of request headers."""

from __future__ import annotations

import pytest

from perdure.egress.headers import MAX_HEADERS, sendable, without
from tests.fakes.samples import case


def test_headers_without_reserved_names_are_unchanged() -> None:
    wanted = {"Accept": "text/html", "X-Api-Version": "2", "Authorization": "Bearer x"}
    assert sendable(wanted) == wanted


def test_reserved_and_invalid_headers_are_dropped() -> None:
    for name in [
        *("Host", "host", "CONNECTION", "Transfer-Encoding", "Content-Length", "Upgrade"),
        *("X-Forwarded-For", "Forwarded", "Proxy-Authorization", "Metadata-Flavor", "Cookie"),
        *("X-HTTP-Method-Override", "Sec-Fetch-Site", "Expect", "TE", "Via"),
        *("", "a b", "a:b", "a\r\nb", "é", "x" * 200),
    ]:
        with case(name):
            assert sendable({name: "1"}) == {}


@pytest.mark.parametrize("value", ["a\r\nHost: x", "a\nb", "a\0b", "a\x7f", "é", "x" * 9000])
def test_header_value_with_a_line_break_is_dropped(value: str) -> None:
    assert sendable({"X-A": value}) == {}


def test_first_spelling_of_a_repeated_header_is_used() -> None:
    assert sendable({"X-A": "1", "x-a": "2"}) == {"X-A": "1"}


def test_number_of_headers_is_limited() -> None:
    assert len(sendable({f"x-{n}": "1" for n in range(100)})) == MAX_HEADERS


def test_headers_are_removed_regardless_of_case() -> None:
    assert without({"AUTHORIZATION": "x", "A": "1"}, ["authorization"]) == {"A": "1"}
