"""The vectors from an embedder are validated; every failure raises one kind of error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from perdure.errors import EmbedderUnavailable, StoreFull
from perdure.models.embedders.answers import MOST_CHARACTERS, vectors_of
from tests.fakes.embedders import WordEmbedder
from tests.fakes.samples import case

Answer = Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]


class Odd:
    """An embedder that returns any given answer."""

    model = "odd:1"

    def __init__(self, answer: object) -> None:
        self._answer = answer

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        if isinstance(self._answer, BaseException):
            raise self._answer
        if self._answer == "hang":
            await asyncio.sleep(60)
        return self._answer  # pyright: ignore[reportReturnType] - that is the point


async def test_invalid_answers_and_failures_raise_the_same_error() -> None:
    answers: tuple[tuple[object, str], ...] = (
        ((), "2 texts got 0 vectors"),
        ([[1.0], [1.0, 2.0]], "2 texts got 2 vectors"),
        (((), ()), "2 texts got 2 vectors"),
        ([[float("nan")], [1.0]], "not finite"),
        ([[float("-inf")], [1.0]], "not finite"),
        ([[1e308], [1.0]], "too large"),
        ([["x"], [1.0]], "could not convert"),
        (None, "not iterable"),
        ("hang", "no vectors within 0.05 s"),
        (RuntimeError("key sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"), "key"),
        (RuntimeError("no " * 91 + "sk-ant-api03-" + "Ab1" * 30), "no no"),
        (StoreFull("sqlite:///x"), "x"),
        (asyncio.CancelledError(), "cancelled from inside"),
        (GeneratorExit(), "GeneratorExit"),
        (EmbedderUnavailable("odd:1", "down"), "down"),
    )
    for answer, reason in answers:
        with case(str(answer)), pytest.raises(EmbedderUnavailable, match=reason) as caught:
            await vectors_of(Odd(answer), ["a", "b"], 0.05)
        assert "sk-ant" not in str(caught.value)


async def test_text_beyond_the_character_limit_is_cut_before_it_is_embedded() -> None:
    embedder = WordEmbedder()
    (vector,) = await vectors_of(embedder, ["a" * 2 * MOST_CHARACTERS], 1)
    assert len(vector) == embedder.dimension
    assert [len(text) for text in embedder.asked] == [MOST_CHARACTERS]
