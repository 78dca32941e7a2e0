"""Joined sequences behave as the tuple of their items."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.session.sequences import Joined

PARTS = st.lists(st.lists(st.integers(0, 3), max_size=5).map(tuple), max_size=5)
PLACES = st.one_of(st.none(), st.integers(-30, 30))


@given(PARTS, PLACES, PLACES)
def test_joined_sequence_is_read_as_one_tuple(
    parts: list[tuple[int, ...]], start: int | None, stop: int | None
) -> None:
    whole = tuple(item for part in parts for item in part)
    joined = Joined(parts)
    assert (len(joined), tuple(joined), joined) == (len(whole), whole, whole)
    assert tuple(reversed(joined)) == whole[::-1]
    assert [joined[at] for at in range(-len(whole), len(whole))] == [*whole, *whole]
    assert joined[start:stop] == whole[start:stop]
    assert joined[stop:start:-1] == whole[stop:start:-1]


@given(PARTS, PARTS, st.integers(0, 12))
def test_joined_sequence_comparison_matches_tuple_comparison(
    parts: list[tuple[int, ...]], others: list[tuple[int, ...]], count: int
) -> None:
    mine, its = Joined(parts), Joined([*parts[:2], *others])
    assert mine.agrees(its, count) == (tuple(mine)[:count] == tuple(its)[:count])


def test_missing_index_of_a_joined_sequence_raises_index_error() -> None:
    joined = Joined([(1, 2), (3,)])
    for place in (3, -4):
        try:
            joined[place]
        except IndexError:
            continue
        raise AssertionError(place)
