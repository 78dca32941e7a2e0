"""The request to a model for facts of an episode, and the accepted answers."""

from __future__ import annotations

import pytest

from perdure.errors import MalformedResponse
from perdure.memory.extraction import (
    MOST_CHARACTERS,
    MOST_FACTS,
    extraction_request,
    facts_in_answer,
)
from perdure.session.codec import new_tree
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.messages import Message, assistant, user


def entries(*messages: Message) -> list[Entry]:
    return [
        Entry(StreamId("s"), seq, "tree", None, None, 0, "message", new.v, new.body)
        for seq, new in enumerate(map(new_tree, messages))
    ]


SAID = entries(user("I like tea"), assistant("Noted"))


def test_extraction_request_numbers_the_messages() -> None:
    request = extraction_request("p:m", SAID, [], 500)
    text = request.messages[0].text
    assert "(1) [User]: I like tea" in text
    assert "(2) [Assistant]: Noted" in text
    assert (request.model, request.max_output_tokens) == ("p:m", 500)


def test_each_extracted_fact_has_its_source_entries() -> None:
    answer = (
        'Here:\n[{"fact": "likes\\n tea", "messages": [1, 2, 1]}, {"fact": "x", "messages": []}]'
    )
    (fact,) = facts_in_answer("p:m", answer, SAID)
    assert (fact.text, fact.sources, fact.said_by) == ("likes tea", ("s/0", "s/1"), "inferred")
    assert facts_in_answer("p:m", "[]", SAID) == []


def test_invalid_facts_in_an_answer_are_skipped() -> None:
    long = "x" * (MOST_CHARACTERS + 1)
    answer = f'[{{"fact": "{long}", "messages": [1]}}, {{"fact": "y", "messages": [0, 3]}}]'
    assert facts_in_answer("p:m", answer, SAID) == []
    longest = f'[{{"fact": "{long[1:]}", "messages": [1]}}]'
    assert [each.text for each in facts_in_answer("p:m", longest, SAID)] == [long[1:]]
    many = ",".join(f'{{"fact": "f{n}", "messages": [1]}}' for n in range(MOST_FACTS + 5))
    assert len(facts_in_answer("p:m", f"[{many}]", SAID)) == MOST_FACTS


@pytest.mark.parametrize("answer", ["", "no", "[1]", '[{"fact": 1}]', "[" * 10_000 + "]" * 10_000])
def test_answer_that_is_not_a_list_of_facts_raises_malformed_response(answer: str) -> None:
    with pytest.raises(MalformedResponse, match="no JSON array"):
        facts_in_answer("p:m", answer, SAID)
