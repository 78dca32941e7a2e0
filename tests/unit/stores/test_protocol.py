"""The durability of a store is selected by name; unknown names are rejected."""

from __future__ import annotations

import pytest

from perdure.errors import ConfigError
from perdure.stores.protocol import durability_of


@pytest.mark.parametrize("text", ["full", "normal"])
def test_valid_durability_name_is_accepted(text: str) -> None:
    assert durability_of(text) == text


@pytest.mark.parametrize("text", ["", "Full", "off"])
def test_error_for_an_unknown_durability_lists_the_valid_names(text: str) -> None:
    with pytest.raises(ConfigError, match=f"{text!r}: use full or normal"):
        durability_of(text)
