"""Random corpora of a few words, as texts and as a corpus object."""

from __future__ import annotations

import random

from perdure.session.ids import StreamId
from perdure.session.search.searchable import Searchable
from perdure.stores.scan import Found
from perdure.stores.search.corpus import Corpus
from perdure.stores.search.index_keys import text_of
from tests.fakes.clock import START_MS
from tests.fakes.recall_reference import SaidText

WORDS = ("tide", "tides", "moon", "boat", "nets", "storm", "ana", "yesterday", "harbour")
QUESTIONS = (
    "When did Ana see the moon?",
    "What about the tides and the boats?",
    "what did Bob Ray tell Ana of the harbour",
    "Which storm was there in November 2023?",
    "moon moon tide",
    "What did Ray say of storms?",
    "What did Bob tell Eve Ray, and Ana?",
)


def random_sessions(seed: int, count: int = 8) -> list[list[SaidText]]:
    """Return sessions of at least one text."""
    chance = random.Random(seed)
    return [
        [
            SaidText(
                f"{number}-{index}",
                chance.choice(("Ana", "Bob Ray", "Eve Ray", None)),
                " ".join(chance.choices(WORDS, k=chance.choice((2, 6, 12, 100))))
                + chance.choice(("", "?", "? yes")),
                START_MS + 86_400_000 * (number * 30) + index,
            )
            for index in range(chance.randint(1, 12))
        ]
        for number in range(count)
    ]


def corpus_of(sessions: list[list[SaidText]], seed: int = 0) -> tuple[Corpus, dict[int, str]]:
    """Return the corpus of `sessions`, texts in random order, and the name of each position."""
    texts = [
        (StreamId(f"s{number}"), place, said)
        for number, session in enumerate(sessions)
        for place, said in enumerate(session)
    ]
    random.Random(seed).shuffle(texts)
    corpus, names = Corpus(), dict[int, str]()
    for position, (stream, place, said) in enumerate(texts, 1):
        what = Searchable("user", said.text, author=said.author)
        found = Found(position, stream, said.at, None, what, None)
        corpus.add_text(text_of(found)._replace(place=place))
        names[position] = said.name
    return corpus, names
