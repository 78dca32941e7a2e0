"""Valid and invalid routes files, and an address without a routes file."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure.client.routes import routed
from perdure.errors import ConfigError

ONE = "[databases.{}]\naddress = 'postgresql://h/{}'\nnamespaces = ['a']\n"


def test_each_namespace_uses_its_configured_or_default_database(tmp_path: Path) -> None:
    file = tmp_path / "routes.toml"
    other = "[databases.y]\naddress = 'postgresql://h/y?replica=r'\n"
    file.write_text("default = 'y'\n" + ONE.format("x", "x") + other)
    address = f"routes:///{file}"
    assert routed(address, "a") == "postgresql://h/x"
    assert routed(address, "b") == "postgresql://h/y?replica=r"
    assert routed("sqlite:///agents.db", "a") == "sqlite:///agents.db"


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (
            ONE.format("x", "x") + ONE.format("y", "y"),
            "the namespace 'a' is in two databases, x and y",
        ),
        (
            ONE.format("x", "x"),
            "the namespace 'n' is in no database",
        ),
        ("default = 'z'\n[databases]\n", "default: there is no database 'z'"),
        (
            "default = 'x'\n[databases.x]\naddress = 'routes:///other.toml'\n",
            r"databases.x: address must be postgresql://",
        ),
        (
            "default = 'x'\n[databases.x]\naddress = 'postgresql://h/x'\nnamespace = 'n'\n",
            "unknown field `namespace`",
        ),
        ("default = ", "routes.toml"),
    ],
)
async def test_invalid_routes_are_refused(written: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "routes.toml"
    file.write_text(written)
    with pytest.raises(ConfigError, match=reason) as refused:
        await perdure.open(f"routes:///{file}", namespace="n")
    assert str(file) in str(refused.value)


@pytest.mark.parametrize("address", ["routes:///", "routes:x.toml", "routes:////no/such/file"])
async def test_routes_address_of_a_missing_file_is_rejected(address: str) -> None:
    with pytest.raises(ConfigError, match=r"names no file|No such file"):
        await perdure.open(address)
