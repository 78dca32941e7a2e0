"""Times of questions with many messages, and what the index costs."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

from rich.table import Table

import perdure
from benchmarks.figures import Stopwatch, percentile
from benchmarks.memory.conversations import Collection, Language
from benchmarks.memory.memories import any_of
from benchmarks.memory.reference import question_words

PER_SESSION = 50
QUESTIONS = 200
SEED = 20_261_120
LANGUAGES: tuple[Language, ...] = ("english", "german", "french")


async def measure_speed(count: int, address: str | None) -> Table:
    """Fill a store with `count` messages of the conversations' own words; ask; measure."""
    chance = random.Random(SEED)
    conversations = Collection().conversations
    texts = [line.words for each in conversations for _, line in each.lines()]
    asked = [question.question for each in conversations for question in each.questions]
    words = [text.split() for text in texts]
    with tempfile.TemporaryDirectory(prefix="perdure-memory-") as folder:
        store_at = address or f"sqlite:///{Path(folder) / 'memory.db'}"
        async with perdure.open(store_at, durability="normal") as store:
            began = time.perf_counter()
            size = await _fill(store, count, words, chance)
            appended_s = time.perf_counter() - began
        plain = _size(folder)  # of a closed store: without its write-ahead log
        async with perdure.open(store_at, durability="normal") as store:
            began = time.perf_counter()
            await store.search("nothing")
            searched_s = time.perf_counter() - began
        with_search = _size(folder)
        async with perdure.open(store_at, durability="normal") as store:
            began = time.perf_counter()
            await store.memory.recall("nothing to recall")
            recalled_s = time.perf_counter() - began
            laps = {"search, any of the words": Stopwatch(), "recall": Stopwatch()}
            for question in chance.sample(asked, min(QUESTIONS, len(asked))):
                query = any_of(question_words(LANGUAGES, question))
                with laps["search, any of the words"]:
                    await store.search(query, limit=10)
                with laps["recall"]:
                    await store.memory.recall(question, limit=10)
        with_recall = _size(folder)
    table = Table("what", "figure", title=f"{count:,} messages, {size / 1e6:.1f} MB of text")
    table.add_row("append", f"{appended_s:.2f} s")
    for name, took, more in (
        ("search", searched_s, with_search - plain),
        ("recall", recalled_s, with_recall - with_search),
    ):
        cost = f"{took:.2f} s, {took / appended_s:.0%} of the append"
        table.add_row(f"the first {name}, which indexes", cost)
        table.add_row("what it adds to the files / text", f"{more / size:.2f}")
    for name, watch in laps.items():
        for share in (0.5, 0.95):
            figure = f"{percentile(watch.laps_ms, share):.2f} ms"
            table.add_row(f"{name}, p{share * 100:.0f}", figure)
    return table


async def _fill(
    store: perdure.Store, count: int, words: list[list[str]], chance: random.Random
) -> int:
    size = 0
    for first in range(0, count, PER_SESSION):
        session = await store.create()
        messages = list[perdure.Message]()
        for number in range(min(PER_SESSION, count - first)):
            text = _text(words, chance)
            size += len(text.encode())
            author = f"Speaker{chance.randrange(8)}"
            messages.append(
                perdure.assistant(text) if number % 2 else perdure.user(text, author=author)
            )
        await session.append_many(messages)
    return size


def _text(words: list[list[str]], chance: random.Random) -> str:
    """Two pieces of different texts: real words, in more combinations than there are texts."""
    parts = list[str]()
    for _ in range(2):
        text = chance.choice(words)
        start = chance.randrange(max(len(text) - 30, 1))
        parts += text[start : start + chance.randrange(8, 30)]
    return " ".join(parts)


def _size(folder: str) -> int:
    return sum(each.stat().st_size for each in Path(folder).rglob("*") if each.is_file())
