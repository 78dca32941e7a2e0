"""Find a provider's key in the environment, else in the operating system's keyring.

In the keyring its service is ``perdure`` and its user the provider's name. Invariant: a key has no
text form. Code calls `value` only to send it; everything printed, logged or raised shows at most
where it came from.
"""

from __future__ import annotations

from collections.abc import Mapping

from perdure.models.catalogue import Provider
from perdure.secrets.vault import Lookup, in_keyring


class ApiKey:
    """A key; `source` says where it was found."""

    __slots__ = ("source", "value")

    def __init__(self, value: str, source: str) -> None:
        self.value = value
        self.source = source

    def __repr__(self) -> str:
        return f"ApiKey(from {self.source})"


def find_key(
    provider: Provider, environment: Mapping[str, str], lookup: Lookup = in_keyring
) -> ApiKey | None:
    """Return the key of `provider`, or None. Asks the keyring only if the environment has none.

    Removes blanks around a key, as files leave them.
    """
    for name in provider.key_variables:
        value = environment.get(name, "").strip()
        if value:
            return ApiKey(value, name)
    value = (lookup(provider.key_name or provider.name) or "").strip()
    return ApiKey(value, "keyring") if value else None
