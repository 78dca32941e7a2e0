"""An entry with invalid fields is rejected."""

from __future__ import annotations

import pytest

from perdure.errors import InvalidEntry
from perdure.session.entries import NewEntry
from perdure.session.ids import EntryId
from perdure.stores.validation import check_form, is_text


@pytest.mark.parametrize(
    "new",
    [
        NewEntry("message", b"{}"),
        NewEntry("message", b"{}", 9),
        NewEntry("label", b"{}", lane="side", about=EntryId("s/0")),
        NewEntry("a" * 64, b"", 2**31 - 1, at=-(2**53), alias="x"),
    ],
)
def test_valid_entry_is_accepted_with_any_body(new: NewEntry) -> None:
    check_form(new)


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (NewEntry("Message", b"{}"), "cannot be a kind"),
        (NewEntry("message\n", b"{}"), "cannot be a kind"),
        (NewEntry("some_kind", b"{}", 0), "version"),
        (NewEntry("label", b"{}"), "side lane"),
        (NewEntry("message", b"{}", lane="side"), "tree lane"),
        (NewEntry("note", b"{}", about=EntryId("s/0")), "about nothing"),
        (NewEntry("note", b"{}", lane="side", parent=EntryId("s/0")), "no parent"),
        (NewEntry("note", b"{}", at=2**53), "out of range"),
        (NewEntry("note", b"{}", alias=""), "foreign id"),
    ],
)
def test_malformed_entry_is_rejected(new: NewEntry, why: str) -> None:
    with pytest.raises(InvalidEntry, match=why):
        check_form(new)


@pytest.mark.parametrize(("text", "is_one"), [("x", True), ("", False), ("\ud800", False)])
def test_empty_or_unencodable_entry_name_is_invalid(text: str, is_one: bool) -> None:
    assert is_text(text) == is_one
