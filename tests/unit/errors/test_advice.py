"""Parts of error messages."""

from __future__ import annotations

from perdure.errors.advice import install_of, nearest_name


def test_nearest_name_is_the_most_similar_name() -> None:
    names = ("model", "tools", "agent")
    assert nearest_name("modle", names) == "model"
    assert nearest_name("agents", names) == "agent"


def test_nearest_name_is_none_if_no_name_is_similar() -> None:
    assert nearest_name("xyz", ("model", "agent")) is None


def test_install_advice_for_an_extra_shows_the_commands_for_a_package_and_for_a_clone() -> None:
    assert install_of("pg") == "pip install 'perdure[pg]' (from a clone: '.[pg]')"
