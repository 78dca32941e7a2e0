"""The key of an encrypted store, as a value that is never printed."""

from __future__ import annotations

import hmac
import re
from typing import final

from perdure.errors.usage import WrongArgument

KEY_BYTES = 32

_HEX = re.compile(r"[0-9a-fA-F]{64}")


@final
class StoreKey:
    """32 secret bytes. Printing, logging, pickling or comparing a key does not reveal its bytes."""

    __slots__ = ("__bytes",)

    def __init__(self, secret: bytes) -> None:
        if len(secret) != KEY_BYTES:
            raise WrongArgument(f"a key is {KEY_BYTES} bytes, not {len(secret)}", argument="key")
        self.__bytes = bytes(secret)

    @classmethod
    def of(cls, given: bytes | str) -> StoreKey:
        """Parse `given`: 32 bytes, or 64 hexadecimal digits.

        Raises: WrongArgument; the text of the error does not contain the given value.
        """
        if isinstance(given, bytes):
            return cls(given)
        if _HEX.fullmatch(given) is None:
            raise WrongArgument(
                f"a key in writing is {2 * KEY_BYTES} hexadecimal digits", argument="key"
            )
        return cls(bytes.fromhex(given))

    def reveal(self) -> str:
        """Return the key as 64 hexadecimal digits, for the cipher and for key storage."""
        return self.__bytes.hex()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreKey) and hmac.compare_digest(self.__bytes, other.__bytes)

    def __hash__(self) -> int:
        return hash(StoreKey)

    def __repr__(self) -> str:
        return "StoreKey(…)"

    def __reduce__(self) -> str:
        raise TypeError("a key is not to be written anywhere")
