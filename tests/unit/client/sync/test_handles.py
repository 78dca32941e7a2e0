"""The stubs are up to date and match the handles."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from perdure import blocking
from scripts.make_blocking import FLOWS_TARGET, TARGET, TARGETS, written


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.stem)
def test_type_stub_of_the_blocking_handles_is_up_to_date(target: Path) -> None:
    assert target.read_text(encoding="utf-8") == written(target), "run scripts/make_blocking.py"


def members(stub: Path) -> dict[str, set[str]]:
    """Return the public methods of each class in `stub`, without instance attributes."""
    return {
        node.name: {
            each.name
            for each in node.body
            if isinstance(each, ast.FunctionDef) and ast.get_docstring(each) is not None
        }
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }


@pytest.mark.parametrize("target", [TARGET, FLOWS_TARGET], ids=lambda target: target.stem)
def test_type_stub_lists_all_members_of_blocking_handles(target: Path) -> None:
    for name, declared in members(target).items():
        handle = getattr(blocking, name)
        public = {each for each in dir(handle) if not each.startswith("_")}
        assert declared <= public, name
        assert public - {"behind"} <= declared | {"result"}, name


def test_blocking_method_has_the_signature_and_docstring_of_its_async_method() -> None:
    method = blocking.Session.fork
    assert list(inspect.signature(method).parameters)[:3] == ["self", "at", "cwd"]
    assert (method.__doc__ or "").startswith("Create a session that shares")
    assert not inspect.iscoroutinefunction(method)
