from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.workflow.templates import neutralised


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
def test_a_space_parts_braces_that_would_open_a_template(said: str, written: str) -> None:
    assert neutralised(said) == written


@given(st.text(alphabet="{} a\n", max_size=30))
def test_nothing_opens_a_template_any_more_and_nothing_is_lost(text: str) -> None:
    written = neutralised(text)
    assert "{{" not in written
    assert neutralised(written) == written
    assert written.replace(" ", "") == text.replace(" ", "")
