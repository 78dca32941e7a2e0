"""Where a provider's key is found: in the environment, else in the operating system's keyring.

There its service is ``perdure`` and its user the provider's name.

The invariant: a key has no text form. Whoever needs it asks for `value`, and only to send it;
everything else that is printed, logged or raised can show where it came from and no more.
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
    """The key of `provider`, or None. The environment is asked first, and enough when it answers.

    Blanks around a key, as a file leaves them, are no part of it.
    """
    for name in provider.key_variables:
        value = environment.get(name, "").strip()
        if value:
            return ApiKey(value, name)
    value = (lookup(provider.key_name or provider.name) or "").strip()
    return ApiKey(value, "keyring") if value else None
