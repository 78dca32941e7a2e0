"""What a chat says about a refused command."""

from __future__ import annotations

from typing import cast

import pytest

from perdure.apps.chat.permissions import refusal_lines
from perdure.secrets.mask import masked_value
from perdure.tools.permissions import Permissions

TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3
LISTED = {"command": "deploy", "args": ["--token", TOKEN]}
TYPED = {"command": f"deploy --token {TOKEN}"}


def told(args: dict[str, object], permissions: Permissions) -> list[str]:
    """Return the lines about a refused call with `args`, which are masked as in an event."""
    shown = masked_value(args)
    return list(refusal_lines(cast("dict[str, object]", shown), permissions))


@pytest.mark.parametrize("args", [LISTED, TYPED])
def test_refused_command_with_a_secret_is_not_suggested_as_a_rule(args: dict[str, object]) -> None:
    first, *rules = told(args, Permissions(allowed_commands=(f"curl -H {TOKEN}", "pwd")))
    assert first == "the command is not allowed: /allow COMMAND or --allow-command allows one"
    assert rules == ["commands that may be asked for: curl -H [redacted]; pwd"]


@pytest.mark.parametrize("args", [LISTED, TYPED])
def test_no_rule_is_suggested_for_an_allowed_command_with_a_secret(
    args: dict[str, object],
) -> None:
    assert told(args, Permissions(allowed_commands=(f"deploy --token {TOKEN}",))) == []
