"""Lookup of named secrets, and scrubbing of used values."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest

from perdure.errors import SecretMissing
from perdure.secrets.vault import Taint, Vault, in_keyring

VALUE = 'p@ss/w"ord 1+2'


def nothing(account: str) -> str | None:
    return None


def vault() -> Vault:
    return Vault({"PERDURE_SECRET_DB": VALUE}, nothing)


def test_secret_in_the_environment_is_preferred_to_the_keyring() -> None:
    assert Vault({"PERDURE_SECRET_DB": "env"}, lambda account: "ring").value("db") == "env"


def test_keyring_secret_is_separate_from_provider_keys() -> None:
    asked: list[str] = []

    def lookup(account: str) -> str:
        asked.append(account)
        return "value"

    assert Vault({}, lookup).value("openai") == "value"
    assert asked == ["secret:openai"]


@pytest.mark.parametrize("name", ["missing", "", "a b", "../openai", "x" * 80])
def test_missing_secret_error_says_where_to_store_it(name: str) -> None:
    with pytest.raises(SecretMissing, match="PERDURE_SECRET_"):
        Vault({}, nothing).value(name)


def test_text_forms_of_a_secret_do_not_contain_its_value() -> None:
    taint = Taint(vault())
    taint.value("DB")
    assert VALUE not in repr(taint) + repr(vault()) + str(vars(taint).keys())


@pytest.mark.parametrize(
    "form",
    [
        VALUE,
        quote(VALUE, safe=""),
        json.dumps(VALUE)[1:-1],
        base64.b64encode(VALUE.encode()).decode(),
        VALUE.encode().hex(),
        VALUE[::-1],
    ],
)
def test_secret_value_is_removed_from_text_in_every_usual_form(form: str) -> None:
    taint = Taint(vault())
    assert taint.fill("Bearer {{secrets.DB}}") == f"Bearer {VALUE}"
    assert taint.scrub(f"<{form}>") == "<[secret:DB]>"


def test_secret_that_contains_another_secret_is_removed_completely() -> None:
    taint = Taint(
        Vault({"PERDURE_SECRET_A": "first-part", "PERDURE_SECRET_B": "first-part-last"}, nothing)
    )
    taint.value("A")
    taint.value("B")
    assert taint.scrub("<first-part-last> <first-part>") == "<[secret:B]> <[secret:A]>"


def test_encoded_form_of_a_secret_is_removed() -> None:
    taint = Taint(vault())
    taint.took("DB", "dXNlcjpwYXNz")
    assert taint.scrub("dXNlcjpwYXNz") == "[secret:DB]"


def test_values_of_unused_secrets_are_not_removed_from_text() -> None:
    assert Taint(vault()).scrub(VALUE) == VALUE


def test_vault_without_a_keyring_has_no_keyring_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "keyring", None)
    assert in_keyring("secret:x") is None
