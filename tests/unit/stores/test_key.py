"""Keys: the accepted forms, and no output that shows a key."""

from __future__ import annotations

import pickle

import pytest

from perdure.errors import WrongArgument
from perdure.stores.key import StoreKey

SECRET = bytes(range(32))


def test_key_accepts_32_bytes_or_64_hexadecimal_digits() -> None:
    assert StoreKey.of(SECRET) == StoreKey.of(SECRET.hex()) == StoreKey.of(SECRET.hex().upper())
    assert StoreKey.of(SECRET).reveal() == SECRET.hex()


@pytest.mark.parametrize("given", [b"", SECRET[1:], SECRET * 2, "", "0" * 63, "g" * 64, "0" * 65])
def test_invalid_key_is_rejected_without_quoting_it(given: bytes | str) -> None:
    with pytest.raises(WrongArgument, match="a key") as refused:
        StoreKey.of(given)
    assert "ggg" not in str(refused.value)


def test_different_encryption_keys_are_unequal() -> None:
    key = StoreKey(SECRET)
    assert key == StoreKey(SECRET)
    assert hash(key) == hash(StoreKey(SECRET))
    assert key != StoreKey(bytes(32))
    assert key != SECRET


def test_encryption_key_is_hidden_in_repr_and_text() -> None:
    key = StoreKey(SECRET)
    for shown in (repr(key), str(key), f"{key}", f"{[key]}", str(vars(StoreKey))):
        assert SECRET.hex() not in shown
        assert repr(SECRET) not in shown
    with pytest.raises(TypeError):
        pickle.dumps(key)
