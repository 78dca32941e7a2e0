"""A layered sequence equals the plain sequence, and has few layers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.context.incremental.layers import Layers


@given(st.lists(st.lists(st.integers(), max_size=9)), st.integers(-1, 400))
def test_appended_items_form_one_sequence(added: list[list[int]], place: int) -> None:
    layers = Layers[int]()
    whole: tuple[int, ...] = ()
    for more in added:
        layers, whole = layers.and_then(tuple(more)), (*whole, *more)
        assert tuple(layers) == layers.whole() == whole
        assert len(layers) == len(whole)
    assert layers.whole((1, 2)) == (*whole, 1, 2)
    assert layers.after(place) == whole[place + 1 :]


def test_long_sequence_has_few_layers() -> None:
    layers = Layers[int]().and_then(tuple(range(10_000)))
    (longest,) = layers.layers
    for n in range(1_000):
        layers = layers.and_then((n,))
        assert len(layers.layers) < 12
    assert next(iter(layers.layers)) is longest
    assert len(layers) == 11_000


def test_sequence_is_a_value() -> None:
    before = Layers[int]().and_then((1, 2, 3))
    assert before.and_then((4,)).whole() == (1, 2, 3, 4)
    assert before.and_then((5,)).whole() == (1, 2, 3, 5)
    assert before.and_then(()) is before
