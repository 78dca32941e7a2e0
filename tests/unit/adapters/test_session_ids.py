"""Session ids that are made from ids of other programs are distinct, and readable if possible."""

from __future__ import annotations

import pytest

from perdure.adapters.session_ids import session_id_of
from perdure.session.ids import stream_id


def test_id_of_legal_characters_stays_readable() -> None:
    assert session_id_of("oa", "user-1@example") == "oa:user-1@example"


@pytest.mark.parametrize(
    "foreign", ["", "a b", "ä", "x" * 200, "a/b", "\ud800", "line\nline", "a\n"]
)
def test_illegal_id_is_hashed_to_a_legal_id(foreign: str) -> None:
    id = session_id_of("oa", foreign)
    assert id.startswith("oa:h:")
    assert stream_id(id) == id


def test_id_that_looks_like_a_hash_stays_unique() -> None:
    hashed = session_id_of("oa", "a b").removeprefix("oa:")
    assert session_id_of("oa", hashed) != session_id_of("oa", "a b")
