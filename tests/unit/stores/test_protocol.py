"""The durability a store is opened with is named, or refused."""

from __future__ import annotations

import pytest

from perdure.errors import ConfigError
from perdure.stores.protocol import durability_of


@pytest.mark.parametrize("text", ["full", "normal"])
def test_a_durability_is_known_by_its_name(text: str) -> None:
    assert durability_of(text) == text


@pytest.mark.parametrize("text", ["", "Full", "off"])
def test_another_name_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(ConfigError, match=f"{text!r}: use full or normal"):
        durability_of(text)
