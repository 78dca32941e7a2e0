"""Texts of the errors for wrong arguments."""

from __future__ import annotations

import pytest

from perdure.errors.arguments import wrong


@pytest.mark.parametrize(
    ("takes", "given", "told"),
    [
        ("str or SessionInfo or None", 10**20, "not int"),
        ("Entry or str", 7, "not 7, which is no id: use entry.id"),
        ("Entry or str", True, "not bool"),
        ("a tuple of int, str", (1,), "not a tuple of 1"),
        ("int", 2.5, "not 2.5"),
        ("int", 10**20, "not one of more than 20 digits"),
        ("str that is not empty", "", "not an empty one"),
    ],
)
def test_wrong_value_is_described_without_its_content(takes: str, given: object, told: str) -> None:
    error = wrong("Store.call", "it", takes, given)
    assert str(error) == f"Store.call takes {takes} as it, {told}"
    assert (error.argument, error.takes) == ("it", takes)
