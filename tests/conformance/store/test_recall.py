"""Recall on every backend: which texts it finds, and their scores."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from perdure.memory.arrays import ArraySums
from perdure.memory.question import question_of
from perdure.memory.ranking import Scope, SumsOf, ranking
from perdure.memory.sums import PlainSums
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId
from perdure.session.messages import assistant, user
from perdure.session.search.parts import sizes
from perdure.stores.retention.erase import EraseRequest
from perdure.stores.search.index_keys import session_key, subject_key
from perdure.stores.search.recall_plan import Asked, Recalled
from perdure.stores.session_store import SessionStore
from tests.conformance.store.building import S, append, create, header
from tests.fakes.clock import START_MS
from tests.fakes.recall_reference import SaidText, reference_scores
from tests.fakes.samples import case, with_larger

pytestmark = pytest.mark.needs("recall")

WORDS = ("tide", "tides", "moon", "boat", "harbour", "nets", "weather", "storm", "ana", "yesterday")
QUESTIONS = (
    "When did Ana see the moon?",
    "What about the tides and the boats?",
    "what did Bob tell Ana of the harbour",
    "Which storm was there in November 2023?",
    "moon moon tide",
)


async def recalled(
    store: SessionStore,
    question: str,
    scope: Scope | None = None,
    limit: int = 10,
    sums: SumsOf = ArraySums,
) -> list[Recalled]:
    asked = question_of(question, START_MS)
    allowed = scope or Scope(subjects=(subject_key(None),))
    rank = ranking(asked, allowed, limit, sums)
    return await store.search.recall(Asked(asked.words, rank))


async def texts(store: SessionStore, question: str, scope: Scope | None = None) -> list[str]:
    return [each.found.what.text for each in await recalled(store, question, scope)]


def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit parts to a few texts, so that some texts are in parts, some loose, some unindexed."""
    monkeypatch.setattr(sizes, "MOST_LOOSE", 20)
    monkeypatch.setattr(sizes, "BATCH_ROWS", 32)
    monkeypatch.setattr(sizes, "SCANNED", 5)


@pytest.mark.full_only
@pytest.mark.parametrize("count", with_larger(4, 12))
async def test_scores_of_random_log_match_formula(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    small_parts(monkeypatch)
    chance = random.Random(7)
    sessions: dict[str, list[SaidText]] = {}
    for size in range(count):
        for number in range(6):
            stream = f"s{number}"
            await _more(store, stream, sessions.setdefault(stream, []), chance)
        asked = QUESTIONS if size == count - 1 else (QUESTIONS[size % 5], QUESTIONS[(size + 2) % 5])
        with case(len(sessions["s0"])):
            await _check(store, list(sessions.values()), asked)


async def _more(
    store: SessionStore, stream: str, said: list[SaidText], chance: random.Random
) -> None:
    """Append some messages and one entry without text to a new or an existing session."""
    at = START_MS + 86_400_000 * chance.randrange(400)
    new = [
        SaidText(
            f"{stream}-{len(said) + n}",
            chance.choice(("Ana", "Bob", None)),
            " ".join(chance.choices(WORDS, k=chance.randint(1, 9)))
            + f" {stream}-{len(said) + n}"
            + chance.choice(("", "?", "? yes")),
            at + n,
        )
        for n in range(chance.randint(1, 4))
    ]
    entries = [
        new_tree(user(each.text, author=each.author, said_at=each.at), at=START_MS) for each in new
    ]
    if said:
        await append(store, StreamId(stream), *entries)
    else:
        await create(store, header(stream), *entries)
    said += new


async def _check(
    store: SessionStore, sessions: list[list[SaidText]], questions: Sequence[str]
) -> None:
    for question in questions:
        wanted = reference_scores(sessions, question, START_MS)
        for sums in (ArraySums, PlainSums):
            found = await recalled(store, question, limit=1_000, sums=sums)
            scores = {each.found.what.text.split()[-1].rstrip("?"): each for each in found}
            got = {
                next(word for word in each.found.what.text.split() if "-" in word).rstrip("?"): (
                    each.ranked.score
                )
                for each in found
            }
            with case((question, sums.__name__, len(scores))):
                assert got == pytest.approx(wanted)
                order = [each.ranked.score for each in found]
                assert order == sorted(order, reverse=True)


async def test_recall_finds_no_text_outside_the_given_scope(store: SessionStore) -> None:
    for subject in ("ana", "bob", None):
        about = header(f"of-{subject}", subject=subject)
        await create(store, about, new_tree(user(f"the moon of {subject}"), at=1))
    for scope, wanted in (
        (Scope(subjects=(subject_key("ana"),)), {"the moon of ana"}),
        (Scope(subjects=(subject_key(None),)), {"the moon of None"}),
        (Scope(subjects=(subject_key("nobody"),)), set[str]()),
        (Scope(), {"the moon of ana", "the moon of bob", "the moon of None"}),
        (Scope(only=(session_key("of-bob"), session_key("none"))), {"the moon of bob"}),
        (Scope(but=(session_key("of-bob"),)), {"the moon of ana", "the moon of None"}),
    ):
        with case(scope):
            assert set(await texts(store, "Which moon?", scope)) == wanted


async def test_score_does_not_depend_on_sessions_out_of_scope(store: SessionStore) -> None:
    await create(store, header("own"), new_tree(user("the moon rose"), at=1))
    (before,) = await recalled(store, "moon")

    for number in range(5):
        other = header(f"other-{number}", subject="ana")
        await create(store, other, *[new_tree(user("moon moon boat"), at=1) for _ in range(9)])

    (after,) = await recalled(store, "moon")
    assert after.ranked.score == before.ranked.score


@pytest.mark.needs("erase")
@pytest.mark.parametrize("is_indexed", [True, False])
async def test_erased_session_is_not_recalled(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch, is_indexed: bool
) -> None:
    if is_indexed:
        small_parts(monkeypatch)
    for stream in ("kept", "gone"):
        said = [new_tree(user(f"the moon of {stream} {n}"), at=n) for n in range(30)]
        await create(store, header(stream), *said)
    assert any("gone" in text for text in await texts(store, "moon"))

    await store.retention.erase(
        EraseRequest(id="e", scope="session", by="test", at=START_MS, name="gone")
    )

    assert len(await recalled(store, "moon", limit=5)) == 5
    found = await recalled(store, "moon", limit=100)
    assert len(found) == 30
    assert {each.found.stream for each in found} == {"kept"}


async def test_recall_finds_an_answer_by_the_words_of_the_question(store: SessionStore) -> None:
    await create(
        store,
        S,
        new_tree(user("Which hotel did you choose?"), at=1),
        new_tree(assistant("The Aurora, near the river."), at=2),
        *[new_tree(user(f"something else {n}"), at=3) for n in range(9)],
    )

    best, *_ = await recalled(store, "What hotel was it?")

    assert best.found.what.text == "The Aurora, near the river."
    assert "hotel" in best.ranked.nearby


async def test_recall_finds_texts_appended_after_an_earlier_recall(
    store: SessionStore,
) -> None:
    await create(store, S, new_tree(user("the moon"), at=1))
    assert await texts(store, "storm") == []

    await append(store, S, new_tree(user("a storm"), at=2))

    assert await texts(store, "storm") == ["a storm", "the moon"]
