"""References to secrets by name, in a text."""

from __future__ import annotations

import pytest

from perdure.secrets.references import fill_references, is_name, names_in


def test_reference_inside_a_secret_value_is_not_replaced() -> None:
    values = {"A": "{{secrets.B}}", "B": "inner"}
    assert (
        fill_references("x {{secrets.A}} {{ secrets.B }}", values.__getitem__)
        == "x {{secrets.B}} inner"
    )


def test_secret_names_in_text_are_returned_in_order() -> None:
    assert names_in("{{secrets.B}}{{secrets.a1}}") == ("B", "a1")
    assert names_in("{{ctx.x}} {{secrets.}} {secrets.A}") == ()


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a.b", "a b", "é", "x" * 65])
def test_invalid_secret_names_are_rejected(name: str) -> None:
    assert not is_name(name)
