from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.interop.workflow_export.slugs import FALLBACK, ascii_slug, readable_slug
from perdure.workflow.document import KEBAB

TITLES = [
    ("İstanbul Sohbeti", "i-stanbul-sohbeti", "istanbul-sohbeti"),
    ("Café déjà vu", "caf-d-j-vu", "cafe-deja-vu"),
    ("Straße über Łódź", "stra-e-ber-d", "strasse-uber-lodz"),
    ("Привет, мир", FALLBACK, "privet-mir"),
    ("Γειά σου", FALLBACK, "geia-soy"),  # noqa: RUF001 - Greek letters are meant
    ("東京タワー", FALLBACK, "u6771-u4eac-tawa-u30fc"),
    ("안녕하세요", FALLBACK, "annyeonghaseyo"),
    ("שלום", FALLBACK, "shlvm"),
    ("Plan ½ of ٣", "plan-of", "plan-1-2-of-3"),
    ("Cafe\u0301", "cafe", "cafe"),
    ("  Fix: the   test! ", "fix-the-test", "fix-the-test"),
    ("😀", FALLBACK, FALLBACK),
    ("", FALLBACK, FALLBACK),
]


@pytest.mark.parametrize(("title", "seed", "ours"), TITLES)
def test_title_is_converted_to_the_expected_slugs(title: str, seed: str, ours: str) -> None:
    assert (ascii_slug(title), readable_slug(title)) == (seed, ours)


@given(st.text(max_size=20))
def test_every_title_gives_a_valid_workflow_id(title: str) -> None:
    assert KEBAB.fullmatch(ascii_slug(title))
    assert KEBAB.fullmatch(readable_slug(title))
