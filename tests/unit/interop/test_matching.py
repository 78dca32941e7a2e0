from __future__ import annotations

from itertools import islice

import pytest

from perdure.interop.matching import session_ids
from perdure.session.ids import stream_id


def first(count: int, foreign: str | None, line: bytes = b"line") -> list[str]:
    return list(islice(session_ids("pi", foreign, line), count))


def test_source_with_a_valid_id_keeps_that_id() -> None:
    assert first(3, "0f6f3f0e-7d55") == ["0f6f3f0e-7d55", "0f6f3f0e-7d55.2", "0f6f3f0e-7d55.3"]


@pytest.mark.parametrize("foreign", ["", "a b", "/etc", "ä", "x" * 129, "a\nb", "\U0001f600"])
def test_invalid_id_is_replaced_by_its_digest(foreign: str) -> None:
    ids = first(3, foreign)
    assert all(stream_id(id) for id in ids)
    assert ids == first(3, foreign)
    assert ids != first(3, foreign + "x")


def test_source_without_id_is_identified_by_first_line() -> None:
    assert first(1, None, b"one") == first(1, None, b"one") != first(1, None, b"two")
    assert first(1, None)[0].startswith("pi-")


def test_numbered_session_ids_stay_within_the_length_limit() -> None:
    assert all(stream_id(id) for id in first(12, "x" * 128))
