"""The mark that perdure writes into a file for another program to continue."""

from __future__ import annotations

from perdure.interop.formats.handover import Handover, conversation_id, handover_in


def test_handover_data_of_an_export_is_read_back() -> None:
    mark = Handover("s", "s/3", 5)
    assert handover_in({"type": "user", **mark.mark}) == mark
    assert mark.id == conversation_id("s", "s/3")
    assert mark.id != Handover("s", "s/4", 5).id


def test_invalid_handover_data_is_ignored() -> None:
    for damaged in ({}, {"perdure": "s"}, {"perdure": {"session": "s"}}, {"perdure": {"entry": 3}}):
        assert handover_in(damaged) is None, damaged
    assert handover_in({"perdure": {"session": "s", "entry": "s/3", "lines": "x"}}) == Handover(
        "s", "s/3", 0
    )
