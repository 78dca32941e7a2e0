"""The facts that an approval is bound to, and how they are displayed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.errors import ApprovalStale, ToolDenied
from perdure.tools import bound_facts
from perdure.tools.approval import digest_of
from perdure.tools.bound_facts import bound_of, file_fact, require_unchanged
from perdure.tools.builtin.edits import write_file
from perdure.tools.permissions import Permissions
from perdure.tools.spec import ToolCall


def call_in(folder: Path, path: str = "a.txt", permissions: Permissions | None = None) -> ToolCall:
    args = {"path": path, "content": "x"}
    return ToolCall("c", "write_file", args, "s", "", 1, folder, permissions or Permissions())


def test_call_with_a_path_outside_the_workspace_is_denied(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc")
    found = bound_of(write_file, call_in(tmp_path, "out/a.txt"), "helper")
    assert isinstance(found.problem, ToolDenied)


def test_approval_becomes_stale_after_a_relevant_change(
    tmp_path: Path,
) -> None:
    call = call_in(tmp_path)
    digest = digest_of("h", bound_of(write_file, call, "helper").facts)
    assert require_unchanged(write_file, call, "helper", "h", digest).facts["agent"] == "helper"
    stricter = call_in(tmp_path, permissions=Permissions(approval="plan"))
    for changed, agent, args in (
        (call, "other", "h"),
        (call, "helper", "i"),
        (stricter, "helper", "h"),
    ):
        with pytest.raises(ApprovalStale):
            require_unchanged(write_file, changed, agent, args, digest)
    (tmp_path / "a.txt").write_text("new")
    with pytest.raises(ApprovalStale):
        require_unchanged(write_file, call, "helper", "h", digest)


def test_approval_of_large_file_is_bound_to_size_and_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bound_facts, "MAX_HASHED_BYTES", 2)
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    facts: list[str] = []
    for _ in range(2):
        descriptor = os.open(path, os.O_RDONLY)
        fact, content = file_fact(descriptor)
        os.close(descriptor)
        assert content is None
        facts.append(fact)
        os.utime(path, ns=(1, 1))
    assert facts[0].startswith("3 bytes, inode ")
    assert facts[0] != facts[1]
