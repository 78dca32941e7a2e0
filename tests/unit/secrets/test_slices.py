"""A long text is scanned in slices; slice boundaries do not change the results."""

from __future__ import annotations

import re
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.secrets import shapes
from perdure.secrets.files import IN_FILES
from tests.fakes.secret_forms import MARKED

PLACED = [
    "password=" + "Tr0ub4dor" * 3,
    'define("DB_PASSWORD", "hunter2hunter2");',
    "Authorization: Bearer abcdefghijklmnop",
    "postgres://user:s3cr3tpass@db/x",
    "password: |\n    hunter2hunter2\n",
    "my api_key = 'Ab3dE6gH9jK2mN5p'",
    "machine example.com login ann password hunter2",
    "db.example.com:5432:main:ann:hunter2",
    "-----BEGIN RSA PRIVATE KEY-----\n" + "QUJD" * 200 + "\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("secret", [*(key for _, key in MARKED), *PLACED])
def test_secret_at_slice_boundary_is_found_completely(
    secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shapes, "SLICE", 256)
    alone = {secret[find.start : find.end] for find in shapes.finds(secret)}
    assert alone
    for before in range(256 - len(secret) % 256 - 3, 260, 5):
        text = "x\n" * (before // 2) + "." * (before % 2) + f"\n{secret}\n" + "y z\n" * 300
        found = {text[find.start : find.end] for find in shapes.finds(text)}
        assert found == alone, before


@pytest.mark.parametrize("cut", [1, 5, 9])
def test_placeholder_at_a_slice_boundary_is_not_a_secret(cut: int) -> None:
    before = "x\n" * shapes.SLICE
    text = f"{before[: shapes.SLICE - cut]}[secret-1]: abc123def and more"
    assert list(shapes.finds(text)) == []


def test_key_longer_than_a_slice_is_found_once() -> None:
    key = "sk-ant-" + "a1" * shapes.SLICE
    token = "eyJ" + "b" * 2 * shapes.SLICE + "." + "c" * 2 * shapes.SLICE + ".d"
    text = f"first {key} then {token} end"
    found = {(find.kind, text[find.start : find.end]) for find in shapes.finds(text)}
    assert found == {("anthropic-key", key), ("jwt", token)}


def test_secret_pattern_is_not_tried_without_its_keyword(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[str] = []
    compiled = re.compile

    def counted(shape: str) -> re.Pattern[str]:
        tried.append(shape)
        return compiled(shape)

    monkeypatch.setattr(re, "compile", counted)
    plain = "some words of a long text " * (10 * shapes.SLICE // 26)
    assert list(shapes.finds(plain)) == []
    assert not [shape for shape in tried if "cookie" in shape]
    cookie = plain[: 5 * shapes.SLICE] + "\ncookie: abcdefghij\n" + plain
    assert [find.kind for find in shapes.finds(cookie)] == ["cookie"]
    assert len([shape for shape in tried if "cookie" in shape]) <= 4  # in two slices at most


def test_search_for_kinds_finds_the_kinds_of_all_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shapes, "SLICE", 256)
    secrets = [*(key for _, key in MARKED), *PLACED]
    for first in range(len(secrets)):
        some = [*secrets[first:], *secrets[:first]][: 1 + first % 9]
        text = ("\n" + "y z\n" * 40).join(some * 2)
        assert shapes.kinds_in(text) == {find.kind for find in shapes.finds(text)}, first


def test_found_secret_kind_is_not_searched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[str] = []
    compiled = re.compile

    def counted(shape: str) -> re.Pattern[str]:
        tried.append(shape)
        return compiled(shape)

    line = "password=Tr0ub4dor31 api_key: 'Ab3dE6gH9jK2mN5p' Bearer abcdefghijklmnop\n"
    text = line * (6 * shapes.SLICE // len(line))
    monkeypatch.setattr(re, "compile", counted)
    assert shapes.kinds_in(text) == {"authorization", "password", "secret"}
    first = len(tried)
    assert shapes.kinds_in(text[: shapes.SLICE]) == {"authorization", "password", "secret"}
    alone = len(tried) - first
    assert first < 2 * alone  # of six slices


def test_other_threads_run_while_a_long_text_is_searched_for_secrets() -> None:
    text = '{"path": "/src/main.py", "token_count": 55, "ok": true}\n' * 40_000
    began, turns = time.thread_time(), list[int]()
    while max(turns, default=0) < 10 and len(turns) < 10:  # this thread itself may be stopped
        searching = threading.Thread(target=lambda: list(shapes.finds(text)))
        turns.append(0)
        searching.start()
        while searching.is_alive():
            time.sleep(0.001)
            turns[-1] += 1
    assert max(turns) >= 10
    assert time.thread_time() - began < 1


def test_secret_patterns_that_ignore_case_are_in_lower_case() -> None:
    ignoring = [
        shape
        for shape in vars(shapes).values()
        if isinstance(shape, str) and shape.startswith(shapes.IGNORING_CASE)
    ]
    ignoring += [shape for _, _, shape in (*shapes.PLACED, *IN_FILES) if shape.startswith("(?i")]
    assert len(ignoring) > 15
    for shape in ignoring:
        letters = re.sub(r"\(\?P<|\\.|\[[^]]*\]", "", shape)
        assert letters == letters.lower(), shape


def test_every_variant_of_a_key_prefix_is_recognized() -> None:
    for begin in ("shpat", "shpca", "shppa", "shpss"):
        assert re.match(shapes.MARKED_BEGIN, f"{begin}_{'0' * 32}"), begin


@pytest.mark.parametrize("shape", shapes.MARKED.values(), ids=str)
@settings(max_examples=max(6, settings().max_examples // 2))
@given(data=st.data())
def test_every_key_with_a_known_prefix_matches_the_prefix_filter(
    shape: str, data: st.DataObject
) -> None:
    key = data.draw(st.from_regex(re.compile(shape, re.ASCII), fullmatch=True))
    assert re.match(shapes.MARKED_BEGIN, key), key
