"""Errors of outgoing requests and of their secrets.

No message of an error in this module contains an address, a path or a secret value.
"""

from __future__ import annotations

from perdure.errors.engine import ConfigError
from perdure.errors.root import PerdureError


class EgressError(PerdureError):
    """An outgoing request could not be made or was not answered."""

    code = "egress_error"
    retryable = True

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class EgressDenied(EgressError):
    """A rule forbids the destination of the request; nothing was sent."""

    code = "egress_denied"
    retryable = False


class SecretMissing(ConfigError):
    """A referenced secret is neither in the environment nor in the keyring."""

    code = "secret_missing"

    def __init__(self, name: str, variable: str) -> None:
        super().__init__(
            f"there is no secret {name!r}: set ${variable}, or put it into the keyring "
            f"(service 'perdure', user 'secret:{name}')"
        )
        self.name = name
        self.variable = variable


class SecretPasted(ConfigError):
    """A credential was given where it would be stored in plain text."""

    code = "secret_pasted"

    def __init__(self, place: str, kinds: tuple[str, ...]) -> None:
        super().__init__(
            f"{place} holds what looks like a credential ({', '.join(kinds)}); refer to it as "
            "{{secrets.NAME}} where that is allowed, or leave it out"
        )
        self.place = place
        self.kinds = kinds
