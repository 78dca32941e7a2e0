"""Parts of error messages."""

from __future__ import annotations

from perdure.errors.advice import install_of, nearest_name


def test_nearest_name_is_the_most_similar_name() -> None:
    names = ("model", "tools", "agent")
    assert nearest_name("modle", names) == "model"
    assert nearest_name("agents", names) == "agent"


def test_nearest_name_is_none_if_no_name_is_similar() -> None:
    assert nearest_name("xyz", ("model", "agent")) is None


def test_advice_for_a_missing_extra_contains_the_install_command() -> None:
    assert install_of("pg") == "pip install 'perdure[pg]' (from a clone: '.[pg]')"
