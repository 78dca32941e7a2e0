"""Keys: what is one, and that nothing shows it."""

from __future__ import annotations

import pickle

import pytest

from perdure.stores.key import StoreKey

SECRET = bytes(range(32))


def test_a_key_is_32_bytes_or_their_64_hexadecimal_digits() -> None:
    assert StoreKey.of(SECRET) == StoreKey.of(SECRET.hex()) == StoreKey.of(SECRET.hex().upper())
    assert StoreKey.of(SECRET).reveal() == SECRET.hex()


@pytest.mark.parametrize("given", [b"", SECRET[1:], SECRET * 2, "", "0" * 63, "g" * 64, "0" * 65])
def test_anything_else_is_refused_and_not_repeated(given: bytes | str) -> None:
    with pytest.raises(ValueError, match="a key") as refused:
        StoreKey.of(given)
    assert "ggg" not in str(refused.value)


def test_keys_are_told_apart() -> None:
    key = StoreKey(SECRET)
    assert key == StoreKey(SECRET)
    assert hash(key) == hash(StoreKey(SECRET))
    assert key != StoreKey(bytes(32))
    assert key != SECRET


def test_a_key_shows_itself_to_nobody_by_accident() -> None:
    key = StoreKey(SECRET)
    for shown in (repr(key), str(key), f"{key}", f"{[key]}", str(vars(StoreKey))):
        assert SECRET.hex() not in shown
        assert repr(SECRET) not in shown
    with pytest.raises(TypeError):
        pickle.dumps(key)
