"""Values of the API: names and times in responses."""

from __future__ import annotations

import msgspec

from perdure.apps.server.values import Sent, time_of


def test_json_field_names_are_camel_case() -> None:
    sent = Sent(session_id="s", status="started", is_new=True)
    assert set(msgspec.to_builtins(sent)) == {"sessionId", "status", "isNew", "entryId"}


def test_time_is_utc_with_milliseconds() -> None:
    assert time_of(0) == "1970-01-01T00:00:00.000Z"
    assert time_of(1_795_000_000_123) == "2026-11-18T11:06:40.123Z"
