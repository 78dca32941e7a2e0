"""Where a provider's key is found: in the environment, else in the operating system's keyring.

The invariant: a key has no text form. Whoever needs it asks for `value`, and only to send it;
everything else that is printed, logged or raised can show where it came from and no more.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping

from perdure.models.catalogue import Provider

SERVICE = "perdure"
"""The service under which keys lie in the keyring; the user is the provider's name."""

_log = logging.getLogger(__name__)

Lookup = Callable[[str], str | None]
"""Name of a provider -> its key in the keyring."""


class ApiKey:
    """A key; `source` says where it was found."""

    __slots__ = ("source", "value")

    def __init__(self, value: str, source: str) -> None:
        self.value = value
        self.source = source

    def __repr__(self) -> str:
        return f"ApiKey(from {self.source})"


def in_keyring(name: str) -> str | None:
    """The key of the provider `name` in the keyring; None without key, keyring or its package."""
    try:
        found: object = importlib.import_module("keyring").get_password(SERVICE, name)
    except ImportError:
        return None
    except Exception as error:  # noqa: BLE001 - headless, locked, broken: each backend has its own
        # Its class only: what a backend says may hold what it was asked for.
        _log.debug("the keyring cannot be read (%s)", type(error).__name__)
        return None
    return found if isinstance(found, str) else None


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
