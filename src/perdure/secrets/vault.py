"""Where the value of a named secret is found, and who has had it.

A value is looked up when it is about to be used, and whoever asks does so through a `Taint`, which
remembers it: everything that comes back from the use is scrubbed of it. Nothing here has a text
form that shows a value.
"""

from __future__ import annotations

import base64
import importlib
import json
import logging
from collections.abc import Callable, Mapping
from urllib.parse import quote, quote_plus

from perdure.errors import SecretMissing
from perdure.secrets.references import fill_references, is_name

SERVICE = "perdure"
"""The service under which everything of perdure lies in the keyring."""

VARIABLE = "PERDURE_SECRET_"
"""What the environment variable of a secret begins with; its name follows in capital letters."""

SHORTEST = 6
"""Of a shorter value only what it is in plain text or in a URL is scrubbed, not its encodings."""

_log = logging.getLogger(__name__)

Lookup = Callable[[str], str | None]
"""Account in the keyring -> what lies there."""


def in_keyring(account: str) -> str | None:
    """What lies under `account` in the keyring; None without it, a keyring, or its package."""
    try:
        found: object = importlib.import_module("keyring").get_password(SERVICE, account)
    except ImportError:
        return None
    except Exception as error:  # noqa: BLE001 - headless, locked, broken: each backend has its own
        # Its class only: what a backend says may hold what it was asked for.
        _log.debug("the keyring cannot be read (%s)", type(error).__name__)
        return None
    return found if isinstance(found, str) else None


class Vault:
    """The named secrets of this machine: the environment's first, then the keyring's.

    In the keyring a secret lies under ``secret:NAME``, so that no name reaches a provider's key.
    """

    def __init__(self, environment: Mapping[str, str], lookup: Lookup = in_keyring) -> None:
        self._environment = environment
        self._lookup = lookup

    def __repr__(self) -> str:
        return "Vault()"

    def value(self, name: str) -> str:
        """The secret `name`.

        Raises: SecretMissing, which says where to put it.
        """
        variable = VARIABLE + name.upper()
        found = None
        if is_name(name):
            found = self._environment.get(variable) or self._lookup(f"secret:{name}")
        if not found or not found.strip():
            raise SecretMissing(name, variable)
        return found.strip()


class Taint:
    """The secrets one call was given, to be taken out of all that it gives back."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._names: dict[str, str] = {}  # form of a value -> name

    def __repr__(self) -> str:
        return f"Taint({len(self._names)} forms)"

    def value(self, name: str) -> str:
        """The secret `name`, remembered.

        Raises: SecretMissing.
        """
        value = self._vault.value(name)
        for form in _forms(value):
            self._names.setdefault(form, name)
        return value

    def fill(self, text: str) -> str:
        """`text` with its references filled, each remembered.

        Raises: SecretMissing.
        """
        return fill_references(text, self.value)

    def took(self, name: str, form: str) -> None:
        """Remember another form in which the secret `name` was sent."""
        self._names.setdefault(form, name)

    def scrub(self, text: str) -> str:
        """`text` with ``[secret:NAME]`` for every value given out, in any of its usual forms."""
        for form in sorted(self._names, key=len, reverse=True):
            text = text.replace(form, f"[secret:{self._names[form]}]")
        return text


def _forms(value: str) -> set[str]:
    """How `value` may come back: as it is, escaped for a URL or JSON, or in base 64 or 16."""
    content = value.encode()
    forms = {value, quote(value, safe=""), quote_plus(value), json.dumps(value)[1:-1]}
    if len(value) >= SHORTEST:
        encoded = base64.b64encode(content).decode()
        forms |= {encoded, encoded.rstrip("="), content.hex(), content.hex().upper(), value[::-1]}
        forms |= {base64.urlsafe_b64encode(content).decode().rstrip("=")}
    return {form for form in forms if form}
