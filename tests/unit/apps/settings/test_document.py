import pytest

from perdure.apps.settings.document import (
    AT_MOST,
    BUILT_IN,
    OF_PROJECTS,
    VARIABLES,
    FiledPrice,
    commands_and_hosts,
)
from perdure.errors import ConfigError
from perdure.models.prices import Price, dollars


def test_rules_of_settings_refer_only_to_existing_settings() -> None:
    assert {*AT_MOST, *VARIABLES, *OF_PROJECTS} <= BUILT_IN.keys()
    assert OF_PROJECTS.keys() - AT_MOST.keys() == {"store.namespace"}


def test_price_in_dollars_is_exact_in_micro_cents() -> None:
    assert FiledPrice(3.0, 4.5, 0.3).price == Price(dollars(3), dollars("4.5"), dollars("0.3"))


def test_commands_with_wildcards_are_patterns() -> None:
    allowed = commands_and_hosts(("ls", "git *"), ("example.org",))
    assert allowed.allowed_commands == ("ls",)
    assert allowed.allowed_command_globs == ("git *",)
    assert allowed.allowed_domains == ("example.org",)
    with pytest.raises(ConfigError):
        commands_and_hosts(("a; b",), ())
