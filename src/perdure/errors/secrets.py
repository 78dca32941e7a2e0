"""What is wrong with a secret: it is nowhere, or where it must not be. Never shows a value."""

from __future__ import annotations

from perdure.errors.engine import ConfigError


class SecretMissing(ConfigError):
    """A secret that is referred to by name is neither in the environment nor in the keyring."""

    code = "secret_missing"

    def __init__(self, name: str, variable: str) -> None:
        super().__init__(
            f"there is no secret {name!r}: set ${variable}, or put it into the keyring "
            f"(service 'perdure', user 'secret:{name}')"
        )
        self.name = name
        self.variable = variable


class SecretPasted(ConfigError):
    """A credential stands where it would be stored in plain text."""

    code = "secret_pasted"

    def __init__(self, place: str, kinds: tuple[str, ...]) -> None:
        super().__init__(
            f"{place} holds what looks like a credential ({', '.join(kinds)}); refer to it as "
            "{{secrets.NAME}} where that is allowed, or leave it out"
        )
        self.place = place
        self.kinds = kinds
