"""A short run of every fuzzer; `python -m tests.fuzz FORMAT --seconds N` runs one for longer."""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from tests.fakes.samples import FOR_LONG, rounds
from tests.fuzz.checking import check
from tests.fuzz.corpus import FORMATS, corpus
from tests.fuzz.memory import check_memory
from tests.fuzz.mutation import mutated

CASES, MORE_CASES = 7, 33
"""Cases of each format in `make test`, and how many more `make test-all` runs."""


@pytest.mark.parametrize("is_rest", [False, pytest.param(True, marks=FOR_LONG)])
@pytest.mark.parametrize("format", FORMATS)
def test_no_mutated_file_crashes_an_importer_or_loses_a_line(format: str, is_rest: bool) -> None:
    files = corpus(format)
    first = _first_seed()
    for number in range(CASES, CASES + rounds(MORE_CASES)) if is_rest else range(CASES):
        seed = first + number
        try:
            asyncio.run(check(mutated(files, seed), seed))
        except BaseException as error:
            error.add_note(f"python -m tests.fuzz {format} --seed {seed} --seconds 1")
            raise


@pytest.mark.all_only
@pytest.mark.soak
@pytest.mark.parametrize("format", FORMATS)
def test_importer_memory_is_limited_by_line_length_and_line_count(format: str) -> None:
    files = corpus(format)
    first = _first_seed()
    for seed in range(first, first + rounds(1)):
        try:
            asyncio.run(check_memory(mutated(files, seed)))
        except BaseException as error:
            error.add_note(f"FUZZ_SEED={seed}")
            raise


def test_mutated_file_is_determined_by_its_seed() -> None:
    files = corpus("pi")
    assert mutated(files, 7) == mutated(files, 7)
    assert len({mutated(files, seed) for seed in range(20)}) > 15


def _first_seed() -> int:
    """Return the seed of the first case: random, but fixed in CI as for property tests."""
    drawn = 0 if "CI" in os.environ else random.randrange(10**9)
    return int(os.environ.get("FUZZ_SEED", drawn))
