"""Times of questions over many messages, and the cost of the index."""

from __future__ import annotations

import asyncio
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
from perdure.models.embedders.protocol import Embedder

PER_SESSION = 50
QUESTIONS = 200
PAUSE_S = 0.002
SEARCH_CPU = "CPU time of the first search, divided by the CPU time to append"
VECTORS = "growth of the files by the vectors, divided by the text"
SEED = 20_261_120
LANGUAGES: tuple[Language, ...] = ("english", "german", "french")


async def measure_speed(count: int, address: str | None, embedder: Embedder | None = None) -> Table:
    """Fill a store with `count` messages from words of the conversations, and measure questions."""
    chance = random.Random(SEED)
    conversations = Collection().conversations
    texts = [line.words for each in conversations for _, line in each.lines()]
    asked = [question.question for each in conversations for question in each.questions]
    words = [text.split() for text in texts]
    with tempfile.TemporaryDirectory(prefix="perdure-memory-") as folder:
        store_at = address or f"sqlite:///{Path(folder) / 'memory.db'}"
        async with perdure.open(store_at, durability="normal") as store:
            began, cpu = time.perf_counter(), time.process_time()
            size = await _fill(store, count, words, chance)
            appended_s, appended_cpu = time.perf_counter() - began, time.process_time() - cpu
        plain = _size(folder)  # of a closed store: without its write-ahead log
        async with perdure.open(store_at, durability="normal") as store:
            began, cpu = time.perf_counter(), time.process_time()
            await store.search("nothing")
            searched_s, searched_cpu = time.perf_counter() - began, time.process_time() - cpu
        with_search = _size(folder)
        async with perdure.open(store_at, durability="normal") as store:
            began = time.perf_counter()
            await store.memory.recall("nothing to recall")
            recalled_s = time.perf_counter() - began
            laps = await _laps(store, chance.sample(asked, min(QUESTIONS, len(asked))))
        with_recall = _size(folder)
        async with perdure.open(store_at, durability="normal") as store:
            waits = await _waits(store, count // 5, words, chance)
        with_waits = _size(folder)
        rows = [] if embedder is None else await _with_vectors(store_at, embedder, asked, chance)
        with_vectors = _size(folder)
    table = Table("what", "figure", title=f"{count:,} messages, {size / 1e6:.1f} MB of text")
    table.add_row("time to append all messages", f"{appended_s:.2f} s")
    costs = (
        ("search", searched_s / appended_s, (with_search - plain) / size),
        ("recall", recalled_s / appended_s, (with_recall - with_search) / size),
    )
    for name, share, more in costs:
        first = f"first {name}, which builds the index"
        table.add_row(f"time of the {first}, divided by the time to append", f"{share:.0%}")
        table.add_row(f"growth of the files by the {first}, divided by the text", f"{more:.3f}")
    for row in (
        (SEARCH_CPU, f"{searched_cpu / appended_cpu:.0%}"),
        *_percentiles(laps),
        *_percentiles(waits, (0.5, 0.99, 1.0)),
        *rows,
    ):
        table.add_row(*row)
    if rows:
        table.add_row(VECTORS, f"{(with_vectors - with_waits) / size:.2f}")
    return table


async def _laps(store: perdure.Store, asked: list[str]) -> dict[str, Stopwatch]:
    """Ask each question, and recall each question again with the words already cached."""
    search, recall, cpu, again = (
        Stopwatch(),
        Stopwatch(),
        Stopwatch(time.process_time),
        Stopwatch(),
    )
    for question in asked:
        query = any_of(question_words(LANGUAGES, question))
        with search:
            await store.search(query, limit=10)
        with recall, cpu:
            await store.memory.recall(question, limit=10)
    for question in asked:
        with again:
            await store.memory.recall(question, limit=10)
    return {
        "search for any word of the question": search,
        "recall": recall,
        "CPU time of recall": cpu,
        "recall of a question for the second time": again,
    }


async def _waits(
    store: perdure.Store, count: int, words: list[list[str]], chance: random.Random
) -> dict[str, Stopwatch]:
    """Measure appends alone, and appends while a search indexes `count` new messages."""
    alone, beside = Stopwatch(), Stopwatch()
    session = await store.create()
    for _ in range(QUESTIONS):
        with alone:
            await session.append(perdure.user("a short message"))
    await _fill(store, count, words, chance)
    searching = asyncio.create_task(store.search("nothing"))
    while not searching.done():
        with beside:
            await session.append(perdure.user("a short message"))
        await asyncio.sleep(PAUSE_S)
    await searching
    return {"append": alone, f"append while a search indexes {count:,} messages": beside}


def _percentiles(
    laps: dict[str, Stopwatch], shares: tuple[float, ...] = (0.5, 0.95)
) -> list[tuple[str, str]]:
    return [
        (f"{name}, {_shown(share)}", f"{percentile(watch.laps_ms, share):.2f} ms")
        for name, watch in laps.items()
        for share in shares
    ]


def _shown(share: float) -> str:
    return "longest" if share == 1 else f"p{share * 100:.0f}"


async def _with_vectors(
    address: str, embedder: Embedder, asked: list[str], chance: random.Random
) -> list[tuple[str, str]]:
    """Compute a vector for every text, ask questions, and return the rows of the table."""
    name, watch = embedder.model.partition(":")[0], Stopwatch()
    async with perdure.open(address, durability="normal") as store:
        memory = store.memory.with_embedder(embedder)
        began = time.perf_counter()
        count = await memory.embed()
        rows = [
            (
                f"time to compute the vectors by {name}",
                f"{(time.perf_counter() - began) / count * 1e3:.3f} ms per text",
            )
        ]
        began = time.perf_counter()
        await memory.recall("nothing to recall")
        rows.append(
            ("time of the first recall with vectors", f"{time.perf_counter() - began:.2f} s")
        )
        for question in chance.sample(asked, min(QUESTIONS, len(asked))):
            with watch:
                await memory.recall(question, limit=10)
    return rows + _percentiles({"recall with vectors": watch})


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
    """Return a text of real words that hardly ever repeats: it combines parts of two texts."""
    parts = list[str]()
    for _ in range(2):
        text = chance.choice(words)
        start = chance.randrange(max(len(text) - 30, 1))
        parts += text[start : start + chance.randrange(8, 30)]
    return " ".join(parts)


def _size(folder: str) -> int:
    return sum(each.stat().st_size for each in Path(folder).rglob("*") if each.is_file())
