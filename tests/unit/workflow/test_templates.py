from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import ConfigError
from perdure.workflow.templates import neutralise, with_context, without_context


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("{{ secrets.X }}", "{ { secrets.X }}"),
        ("{{{", "{ { {"),
        ("{ {", "{ {"),
        ("f({'a': {}})", "f({'a': {}})"),
        ("", ""),
    ],
)
def test_space_is_inserted_between_adjacent_opening_braces(said: str, written: str) -> None:
    assert neutralise(said) == written


@given(st.text(alphabet="{} a\n", max_size=30))
def test_neutralised_text_contains_no_placeholder(text: str) -> None:
    written = neutralise(text)
    assert "{{" not in written
    assert neutralise(written) == written
    assert written.replace(" ", "") == text.replace(" ", "")


def test_inserted_context_values_are_never_scanned_for_placeholders() -> None:
    names = {"a": "{{ctx.b}}", "b": "no"}
    assert with_context("x {{ctx.a}} {{ ctx.b }} {{ctx.", names, "they") == "x {{ctx.b}} no {{ctx."


def test_unknown_name_error_lists_existing_names() -> None:
    with pytest.raises(ConfigError, match=r"they use {{ctx\.c}}.*defines: a, b"):
        with_context("{{ctx.c}}", {"a": "", "b": ""}, "they")


@given(st.text(alphabet="{} ctx.a", max_size=40))
def test_escaped_context_placeholders_are_not_replaced(text: str) -> None:
    without = without_context(text)
    assert with_context(without, {}, "they") == without
    assert without.replace(" ", "") == text.replace(" ", "")
