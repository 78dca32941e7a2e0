"""The ids of records for opencode."""

from __future__ import annotations

import pytest

from perdure.interop.formats.opencode.ids import is_id_of, opencode_id
from tests.fakes.clock import START_MS


@pytest.mark.parametrize("kind", ["ses", "msg", "prt"])
@pytest.mark.parametrize("number", [0, 1, 5000])
def test_opencode_id_does_not_match_another_seed(kind: str, number: int) -> None:
    made = opencode_id(kind, START_MS, number, "seed")
    assert is_id_of(made, kind, START_MS, "seed")
    assert not is_id_of(made, kind, START_MS, "other")
    assert not is_id_of(made, kind, START_MS + 1, "seed")


def test_message_ids_increase_and_session_ids_decrease_with_time() -> None:
    def ids(kind: str) -> list[str]:
        return [opencode_id(kind, START_MS + n, 0, "seed") for n in range(3)]

    assert ids("msg") == sorted(ids("msg"))
    assert ids("ses") == sorted(ids("ses"), reverse=True)


def test_text_unlike_an_id_is_not_recognized_as_an_id() -> None:
    for other in ("", "msg_", "msg_zzzzzzzzzzzzAAAAAAAAAAAAAA"):
        assert not is_id_of(other, "msg", START_MS, "seed"), other
