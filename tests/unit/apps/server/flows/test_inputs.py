"""Inputs of flows: unknown names and unknown modes are rejected."""

from __future__ import annotations

import msgspec
import pytest

from perdure.apps.server.flows.inputs import NewConsent, NewFlow, role_for


def test_flow_start_requires_only_a_workspace() -> None:
    new = msgspec.json.decode(b'{"workspace":"/p"}', type=NewFlow)
    assert (new.mode, new.workflow, new.consent) == ("workflow", "workflow.yaml", "no-access")


@pytest.mark.parametrize("body", [b'{"mode":"all-access"}', b'{"modes":"no-access"}'])
def test_unknown_consent_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=NewConsent)


def test_full_access_consent_needs_the_admin_role() -> None:
    assert role_for("full-access") == "admin"
    assert {role_for(mode) for mode in ("no-access", "partial-access", None)} == {"write"}
