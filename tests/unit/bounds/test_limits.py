"""Limits: defaults, settings, and the errors when a limit is exceeded."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from perdure.apps.settings.lookup import apply_limits
from perdure.bounds.limits import (
    InputLimits,
    limits,
    require_within,
    use_input_limits,
)
from perdure.errors import LimitExceeded, WrongArgument

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "configuration.md"


@pytest.fixture(autouse=True)
def usual() -> Generator[None]:
    """Restore the default limits before and after the test."""
    yield
    use_input_limits(InputLimits())


def test_error_for_an_exceeded_limit_contains_the_limit() -> None:
    use_input_limits(InputLimits(mcp_tools=3))
    require_within("mcp_tools", 3, "x")
    with pytest.raises(
        LimitExceeded, match=r"x exceeds limits.mcp_tools = 3; raise that limit"
    ) as got:
        require_within("mcp_tools", 4, "x")
    assert got.value.facts()["limit"] == "mcp_tools"


@pytest.mark.parametrize("change", [{"mcp_tools": 0}, {"mcp_schema_depth": 65}, {"mcp_tools": "x"}])
def test_limit_out_of_range_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(WrongArgument, match="InputLimits takes a number in range as mcp_"):
        msgspec.structs.replace(InputLimits(), **change)
    assert limits() == InputLimits()


def test_input_limits_come_from_user_settings(tmp_path: Path) -> None:
    file = tmp_path / "perdure" / "config.toml"
    file.parent.mkdir()
    file.write_text("[limits]\ntemplate_bytes = 77\n")
    apply_limits({"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)})
    assert limits() == InputLimits(template_bytes=77)


def test_guide_lists_every_limit() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    described = msgspec.json.schema(InputLimits)["$defs"]["InputLimits"]["properties"]
    assert list(described) == list(InputLimits.__struct_fields__)
    for name, limit in described.items():
        assert f"| `{name}` | {limit['default']:,} | {limit['description']} |" in guide
