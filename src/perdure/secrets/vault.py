"""Look up the values of named secrets, and track their use.

A value is looked up directly before its use, through a `Taint`. The `Taint` stores the value, and
removes the value from everything that the use returns. The string representation of an object in
this module never contains a value.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Mapping
from typing import Literal
from urllib.parse import quote, quote_plus

from perdure.errors import SecretMissing
from perdure.secrets.keyrings import usable_keyring
from perdure.secrets.references import fill_references, is_name

SERVICE = "perdure"
"""The service name of perdure in the keyring."""

VARIABLE = "PERDURE_SECRET_"
"""Prefix of a secret's environment variable; the secret's name follows in capital letters."""

SHORTEST = 6
"""Shorter values are scrubbed only in plain, URL and JSON form, not in other encodings."""

_log = logging.getLogger(__name__)

Lookup = Callable[[str], str | None]
"""Returns the value of an account in the keyring; None if there is none."""

Drop = Literal["removed", "absent", "unread", "kept"]
"""Outcome of a removal: ``unread`` means an unreadable keyring, ``kept`` a refused removal."""


def in_keyring(account: str) -> str | None:
    """Return the keyring's value of `account`; None if there is none or the keyring is unusable."""
    try:
        keyring = usable_keyring()
        found: object = None if keyring is None else keyring.get_password(SERVICE, account)
    except ImportError:
        return None
    except Exception as error:  # noqa: BLE001 - headless, locked, broken: each backend has its own
        # Only the class: a backend's message may contain the account.
        _log.debug("the keyring cannot be read (%s)", type(error).__name__)
        return None
    return found if isinstance(found, str) else None


def keep_in_keyring(account: str, value: str) -> bool:
    """Store the value of `account` in the keyring; return whether the keyring has it now.

    Blocks.
    """
    try:
        keyring = usable_keyring()
        if keyring is None:
            return False
        keyring.set_password(SERVICE, account, value)
        return keyring.get_password(SERVICE, account) == value
    except Exception:  # noqa: BLE001 - no package, none that works, or locked: any error
        return False


def drop_from_keyring(account: str) -> Drop:
    """Remove `account` from the keyring. Blocks.

    The result states whether the account was removed, was absent, could not be read, or was kept.
    """
    try:
        keyring = usable_keyring()
        if keyring is None or keyring.get_password(SERVICE, account) is None:
            return "absent"
    except ImportError:
        return "absent"
    except Exception:  # noqa: BLE001 - headless, locked, broken: each backend has its own
        return "unread"
    try:
        keyring.delete_password(SERVICE, account)
    except Exception:  # noqa: BLE001 - whatever a backend raises, the value is still in it
        return "kept"
    return "removed"


class Vault:
    """The named secrets of this machine, looked up in the environment, then in the keyring.

    In the keyring, the account of a secret is ``secret:NAME``, so it never equals the account of a
    provider's key.
    """

    def __init__(self, environment: Mapping[str, str], lookup: Lookup = in_keyring) -> None:
        self._environment = environment
        self._lookup = lookup

    def __repr__(self) -> str:
        return "Vault()"

    def value(self, name: str) -> str:
        """Return the value of the secret `name`.

        Raises: SecretMissing if there is no such secret; the error says where to store it.
        """
        variable = VARIABLE + name.upper()
        found = None
        if is_name(name):
            found = self._environment.get(variable) or self._lookup(f"secret:{name}")
        if not found or not found.strip():
            raise SecretMissing(name, variable)
        return found.strip()


class Taint:
    """The secrets given to one call; `scrub` removes them from everything that the call returns."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._names: dict[str, str] = {}  # form of a value -> name

    def __repr__(self) -> str:
        return f"Taint({len(self._names)} forms)"

    def value(self, name: str) -> str:
        """Return the value of the secret `name`, and remember it for `scrub`.

        Raises: SecretMissing if there is no such secret.
        """
        value = self._vault.value(name)
        for form in _forms(value):
            self._names.setdefault(form, name)
        return value

    def fill(self, text: str) -> str:
        """Return `text` with its references resolved, and remember each value for `scrub`.

        Raises: SecretMissing if there is no such secret.
        """
        return fill_references(text, self.value)

    def took(self, name: str, form: str) -> None:
        """Remember for `scrub` that the secret `name` was also sent in the form `form`."""
        self._names.setdefault(form, name)

    def scrub(self, text: str) -> str:
        """Return `text` with ``[secret:NAME]`` for every used value, in any of its usual forms."""
        for form in sorted(self._names, key=len, reverse=True):
            text = text.replace(form, f"[secret:{self._names[form]}]")
        return text


def _forms(value: str) -> set[str]:
    """Return the forms of `value`: plain, escaped for URLs or JSON, in base64 and hex."""
    content = value.encode()
    forms = {value, quote(value, safe=""), quote_plus(value), json.dumps(value)[1:-1]}
    if len(value) >= SHORTEST:
        encoded = base64.b64encode(content).decode()
        forms |= {encoded, encoded.rstrip("="), content.hex(), content.hex().upper(), value[::-1]}
        forms |= {base64.urlsafe_b64encode(content).decode().rstrip("=")}
    return {form for form in forms if form}
