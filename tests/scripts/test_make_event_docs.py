"""The tables of docs/events.md name every event of every kind."""

from __future__ import annotations

import pytest

from perdure.session.codec import BODIES
from scripts import make_event_docs


def test_event_tables_list_every_kind_and_the_document_is_up_to_date() -> None:
    kinds = {kind for _, kind, _ in make_event_docs.durable()}
    assert set(BODIES) <= kinds
    assert make_event_docs.main(["--check"]) == 0


def test_events_with_computed_payload_are_listed() -> None:
    rows = {(type_, kind) for type_, kind, _ in make_event_docs.durable()}
    assert ("session:renamed", "session_info") in rows
    assert ("session:moved", "session_info") in rows
    assert ("session:turn_completed", "turn_finished") in rows
    assert ("cost:updated", "model_finished") in rows


def test_check_of_outdated_document_reports_the_script_to_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(make_event_docs, "tables", lambda: "other")
    assert make_event_docs.main(["--check"]) == 1
    assert "make_event_docs.py writes: run it" in capsys.readouterr().out
