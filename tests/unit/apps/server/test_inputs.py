"""Inputs: unknown names are rejected."""

from __future__ import annotations

import msgspec
import pytest

from perdure.apps.server.inputs import BranchTo, NewMessage


def test_unknown_field_of_a_request_is_refused() -> None:
    assert msgspec.json.decode(b'{"text":"x","sessionId":"s"}', type=NewMessage).session_id == "s"
    with pytest.raises(msgspec.ValidationError, match="unknown"):
        msgspec.json.decode(b'{"text":"x","session":"s"}', type=NewMessage)


def test_omitted_expected_leaf_is_not_read_as_null() -> None:
    missing = msgspec.json.decode(b'{"entry":null}', type=BranchTo)
    null = msgspec.json.decode(b'{"entry":null,"expectedLeaf":null}', type=BranchTo)
    assert (missing.expected_leaf, null.expected_leaf) == (msgspec.UNSET, None)
