"""Which question somebody means."""

from __future__ import annotations

import pytest

from perdure.client.inbox.finding import question_named, stream_asking
from perdure.client.reading import OpenQuestion
from perdure.errors import AmbiguousId, QuestionNotFound
from perdure.session.ids import EntryId
from perdure.session.notes import Question

ASKED = [
    OpenQuestion(EntryId(id), 0, None, Question("approval", "May it?", ()))
    for id in ("trip/9", "trip__owner/4", "work/0:build")
]


@pytest.mark.parametrize(
    ("question", "stream"),
    [("trip/9", "trip"), ("work/0:build", "work"), ("trip", None), ("trip/", None), ("/9", None)],
)
def test_a_whole_id_says_where_it_is_asked(question: str, stream: str | None) -> None:
    assert stream_asking(question) == stream


def test_the_beginning_of_an_id_is_enough_where_only_one_has_it() -> None:
    assert question_named("wo", ASKED) == "work/0:build"
    assert question_named("trip/9", ()) == "trip/9"
    with pytest.raises(AmbiguousId):
        question_named("trip", ASKED)
    with pytest.raises(QuestionNotFound, match="no question 'x' waits here"):
        question_named("x", ASKED)
