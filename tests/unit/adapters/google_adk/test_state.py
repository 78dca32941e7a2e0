"""Changes of the state are grouped by scope; temporary changes are not stored."""

from __future__ import annotations

import datetime

import pytest

from perdure.adapters.google_adk.state import (
    changes_of,
    jsonable,
    merged,
)


def test_state_changes_are_grouped_by_scope() -> None:
    changes = changes_of({"a": 1, "user:b": 2, "app:c": 3, "temp:d": 4, "other:e": 5})
    assert (changes.session, changes.user, changes.app) == (
        {"a": 1, "other:e": 5},
        {"b": 2},
        {"c": 3},
    )


def test_change_to_a_merged_state_does_not_change_the_original() -> None:
    own = {"list": [1]}
    state = merged(own, {"b": 2}, {"c": 3})
    state["list"].append(2)
    assert own == {"list": [1]}
    assert state == {"list": [1, 2], "user:b": 2, "app:c": 3}


def test_value_that_is_not_json_becomes_text(caplog: pytest.LogCaptureFixture) -> None:
    moment = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    assert jsonable({"at": moment}) == {"at": "2026-01-02T00:00:00Z"}
    assert not caplog.records
    assert "object" in jsonable({"x": object()})["x"]
    assert "not JSON" in caplog.text
