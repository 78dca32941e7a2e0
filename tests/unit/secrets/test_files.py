"""Secrets found by their context in a file, an address or a command."""

from __future__ import annotations

import re
import time

import pytest

from perdure.secrets.files import IN_FILES, NAME
from perdure.secrets.shapes import finds


@pytest.mark.parametrize("name", ["db_password", "SMTP_PASS", "apiKey", "Passwort", "credentials"])
def test_secret_field_name_matches_the_secret_pattern(name: str) -> None:
    assert re.search(NAME, name, re.IGNORECASE)


@pytest.mark.parametrize("name", ["bypass", "author", "compass", "monkey", "passage"])
def test_ordinary_field_name_does_not_match_the_secret_pattern(name: str) -> None:
    assert re.search(NAME, name, re.IGNORECASE) is None


@pytest.mark.parametrize(
    "text",
    [
        "src/main.c:1042:7: error: expected ';'",
        "12:30:45:000 started",
        "<tokens>4096</tokens>",
        "the password is required.",
        "https://docs.example.com/@ana",
        "mysql -u root -h db",
        "echo $1 $2$3",
        "-----BEGIN CERTIFICATE-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n-----END CERTIFICATE-----",
    ],
)
def test_text_that_resembles_a_secret_is_ignored(text: str) -> None:
    assert list(finds(text)) == []


@pytest.mark.parametrize(
    "unit",
    ["machine a ", "a:1234:b:c:", "<password>", "name: token ", "<key>token</key>", "$6$", "WIFI:"],
)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    def cost(count: int) -> float:
        text = unit * count
        begun = time.process_time()
        for _ in range(3):
            for _, _, shape in IN_FILES:
                for _ in re.finditer(shape, text):
                    pass
        return time.process_time() - begun

    cost(100)
    assert cost(4_000) < 12 * cost(1_000) + 0.05
