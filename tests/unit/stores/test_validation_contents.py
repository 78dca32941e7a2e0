"""Contents of a commit must be referenced by its entries."""

from __future__ import annotations

import pytest

from perdure.errors import InvalidEntry
from perdure.session.entries import NewEntry
from perdure.session.ids import blob_hash
from perdure.stores.validation import check_contents, named_contents

CONTENT, OTHER = b"picture", b"other"
NAMES = NewEntry("x", f'{{"of":"{blob_hash(CONTENT)}"}}'.encode())
SILENT = NewEntry("x", b"{}")


def test_content_that_an_entry_references_is_accepted() -> None:
    check_contents((CONTENT, CONTENT), (SILENT, NAMES))
    check_contents((), (SILENT,))


@pytest.mark.parametrize("entries", [(), (SILENT,), (NAMES,)])
def test_content_that_no_entry_references_is_rejected(entries: tuple[NewEntry, ...]) -> None:
    with pytest.raises(InvalidEntry, match=blob_hash(OTHER)):
        check_contents((OTHER,), entries)


def test_contents_without_a_reference_are_not_returned() -> None:
    assert named_contents((OTHER, CONTENT), (SILENT, NAMES)) == (CONTENT,)
    assert named_contents((OTHER, CONTENT), ()) == ()
