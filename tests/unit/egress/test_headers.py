"""Which headers go out."""

from __future__ import annotations

import pytest

from perdure.egress.headers import MAX_HEADERS, sendable, without


def test_plain_headers_go_out_as_they_are() -> None:
    wanted = {"Accept": "text/html", "X-Api-Version": "2", "Authorization": "Bearer x"}
    assert sendable(wanted) == wanted


@pytest.mark.parametrize(
    "name",
    [
        *("Host", "host", "CONNECTION", "Transfer-Encoding", "Content-Length", "Upgrade"),
        *("X-Forwarded-For", "Forwarded", "Proxy-Authorization", "Metadata-Flavor", "Cookie"),
        *("X-HTTP-Method-Override", "Sec-Fetch-Site", "Expect", "TE", "Via"),
        *("", "a b", "a:b", "a\r\nb", "é", "x" * 200),
    ],
)
def test_headers_that_are_ours_or_none_are_left_out(name: str) -> None:
    assert sendable({name: "1"}) == {}


@pytest.mark.parametrize("value", ["a\r\nHost: x", "a\nb", "a\0b", "a\x7f", "é", "x" * 9000])
def test_a_value_that_could_break_out_is_left_out_whole(value: str) -> None:
    assert sendable({"X-A": value}) == {}


def test_of_two_spellings_the_first_counts() -> None:
    assert sendable({"X-A": "1", "x-a": "2"}) == {"X-A": "1"}


def test_there_is_a_limit() -> None:
    assert len(sendable({f"x-{n}": "1" for n in range(100)})) == MAX_HEADERS


def test_headers_are_taken_out_in_any_letter_case() -> None:
    assert without({"AUTHORIZATION": "x", "A": "1"}, ["authorization"]) == {"A": "1"}
