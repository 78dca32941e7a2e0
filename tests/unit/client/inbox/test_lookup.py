"""The stream that the id of a question names."""

from __future__ import annotations

import pytest

from perdure.client.inbox.lookup import stream_asking


@pytest.mark.parametrize(
    ("question", "stream"),
    [("trip/9", "trip"), ("work/0:build", "work"), ("trip", None), ("trip/", None), ("/9", None)],
)
def test_whole_id_says_where_it_is_asked(question: str, stream: str | None) -> None:
    assert stream_asking(question) == stream
