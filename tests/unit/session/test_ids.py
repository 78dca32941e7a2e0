from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import WrongArgument
from perdure.session.ids import entry_id, entry_place, generated_stream_id, stream_id


@pytest.mark.parametrize("text", ["a", "7", "A-b_c.d:e@f", "x" * 128, "01jc7q.session"])
def test_valid_id_chosen_by_the_client_is_accepted(text: str) -> None:
    assert stream_id(text) == text


@pytest.mark.parametrize(
    "text",
    ["", " ", "-a", ".a", "_a", "a b", "a/b", "a\n", "\na", "a\0", "ü", "x" * 129, "a\u2028"],
)
def test_invalid_id_is_rejected(text: str) -> None:
    with pytest.raises(WrongArgument, match="cannot be a session id"):
        stream_id(text)


@given(st.integers(min_value=0, max_value=2**48 - 1), st.binary(min_size=10, max_size=20))
def test_generated_id_is_a_stream_id(at: int, random: bytes) -> None:
    made = generated_stream_id(at, random)
    assert len(made) == 26
    assert stream_id(made) == made


@given(
    st.integers(min_value=0, max_value=2**48 - 1),
    st.integers(min_value=0, max_value=2**48 - 1),
    st.binary(min_size=10, max_size=10),
    st.binary(min_size=10, max_size=10),
)
def test_generated_ids_sort_by_time_and_are_unique(
    first: int, second: int, random: bytes, other: bytes
) -> None:
    ids = generated_stream_id(first, random), generated_stream_id(second, other)
    if first != second:
        assert (ids[0] < ids[1]) == (first < second)
    assert (ids[0] == ids[1]) == ((first, random) == (second, other))


def test_generated_id_needs_enough_random_bytes() -> None:
    with pytest.raises(ValueError, match="10 random bytes"):
        generated_stream_id(0, b"123456789")


@given(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,20}", fullmatch=True), st.integers(0, 2**63 - 1)
)
def test_entry_id_contains_the_stream_and_seq_of_the_entry(stream: str, seq: int) -> None:
    assert entry_place(entry_id(stream, seq)) == (stream, seq)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "s/",
        "s/-1",
        "s/x",
        "s/01",
        "s/1.0",
        "s/ 1",
        "s/1 ",
        "s/²",
        "s/\u0661",
        "7",
        "/7",
        "a/b/7",
        "s\n/7",
    ],
)
def test_malformed_entry_id_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not an entry id"):
        entry_place(text)
