"""The same conversation for every benchmark: turns of 4 entries and 7 kB on average, seeded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

from perdure.session.codec import new_tree
from perdure.session.entries import NewEntry
from perdure.session.messages import Message, assistant, tool_call, tool_result, user

USER_BYTES = 300
ANSWER_BYTES = 1_200
PATH_BYTES = 60
RESULT_BYTES = (2_000, 8_000)

ENTRIES_A_TURN = 4
"""The average number of entries in a turn: two and six, alternately."""

_WORDS: tuple[str, ...] = (
    *("the", "log", "keeps", "every", "entry", "of", "a", "session", "and", "turn", "reads"),
    *("its", "branch", "back", "to", "last", "summary", "before", "it", "calls", "model", "or"),
    *("runs", "tool", "whose", "result", "is", "written", "when", "known"),
)
_POOL_WORDS = 100_000


@cache
def _pool(seed: int) -> str:
    """Return the words and numbers that texts are built from."""
    chance = random.Random(seed)
    words: list[str] = chance.choices(_WORDS, k=_POOL_WORDS)
    words[::5] = [str(chance.randrange(10**6)) for _ in words[::5]]
    return " ".join(words)


def turns(seed: int, count: int) -> Iterator[tuple[NewEntry, ...]]:
    """Yield `count` turns as entries."""
    for said in conversation(seed, count):
        yield tuple(new_tree(message) for message in said)


def conversation(seed: int, count: int) -> Iterator[tuple[Message, ...]]:
    """Yield `count` turns. Every second turn calls two tools whose results are 2 to 8 kB long."""
    text = _Text(seed)
    for number in range(count):
        messages = [user(text.of(USER_BYTES))]
        if number % 2:
            for call in range(2):
                messages += _tool_round(text, f"call-{number}-{call}")
        messages.append(assistant(text.of(ANSWER_BYTES)))
        yield tuple(messages)


def _tool_round(text: _Text, call: str) -> list[Message]:
    return [
        assistant(tool_call(call, "read_file", {"path": text.of(PATH_BYTES)})),
        tool_result(call, text.of(*RESULT_BYTES)),
    ]


class _Text:
    """Texts that depend only on a seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._pool = _pool(seed)

    def of(self, least: int, most: int | None = None) -> str:
        """Return a text of `least` characters, or of `least` to `most` characters."""
        size = least if most is None else self._chance.randint(least, most)
        start = self._chance.randrange(len(self._pool) - size)
        return self._pool[start : start + size]


def payload_bytes(turn: tuple[NewEntry, ...]) -> int:
    """Return the number of bytes in the bodies of a turn."""
    return sum(len(entry.body) for entry in turn)
