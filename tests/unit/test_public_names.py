"""`import perdure`: every name exists, and each module is loaded at its first use."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure import errors
from tests.fakes.samples import case

SOURCE = Path(perdure.__file__)


def typed_names() -> set[str]:
    """Return the names in the stub that type checkers read."""
    tree = ast.parse(SOURCE.with_suffix(".pyi").read_text(encoding="utf-8"))
    imported = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in imported for alias in node.names}


def test_names_declared_for_type_checkers_exist_at_runtime() -> None:
    for name in sorted(typed_names()):
        with case(name):
            assert getattr(perdure, name) is not None
            assert name in dir(perdure)


def test_public_names_at_runtime_are_declared_for_type_checkers() -> None:
    public = {name for name in dir(perdure) if not name.startswith("_")}
    packages = {file.parent.name for file in SOURCE.parent.glob("*/__init__.py")}
    others = {"annotations", "importlib", "Mapping"}
    # A package that some other test loaded is a name, too; `errors` is a public one.
    assert public - (packages - typed_names()) - others == typed_names()


def test_star_import_imports_exactly_the_public_names() -> None:
    brought: dict[str, object] = {}
    exec("from perdure import *", brought)
    brought.pop("__builtins__")
    assert set(brought) == typed_names()
    assert brought["Agent"] is perdure.Agent


def test_errors_are_exported_only_from_their_module() -> None:
    for name, value in vars(errors).items():
        if isinstance(value, type):
            assert not hasattr(perdure, name)


@pytest.mark.parametrize("name", ["nonsense", "opne", "_private"])
def test_unknown_name_raises_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
        getattr(perdure, name)


def test_version_equals_package_version() -> None:
    assert perdure.__version__[0].isdigit()


def loaded_by(code: str) -> set[str]:
    """Return the modules that a new interpreter has loaded after `code`."""
    program = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    run = [sys.executable, "-c", program]
    told = subprocess.run(run, check=True, capture_output=True, text=True).stdout
    return set(json.loads(told))


HEAVY = {
    "pydantic",
    "pydantic_ai",
    "openai",
    "httpx",
    "httpx2",
    "typer",
    "click",
    "rich",
    "textual",
    "ruamel.yaml",
    "apsw",
}


def test_import_loads_no_module_of_the_package() -> None:
    loaded = loaded_by("import perdure")
    assert [name for name in loaded if name.startswith("perdure.")] == []
    assert not HEAVY & loaded
    assert "asyncio" not in loaded


def test_in_memory_store_and_chat_load_no_database_or_provider() -> None:
    loaded = loaded_by(
        "import perdure\n"
        "with perdure.blocking.open('memory:') as store:\n"
        "    store.create().append(perdure.user('hi'))\n"
        "    agent = perdure.Agent('a', model='scripted:echo')\n"
        "    runtime = perdure.blocking.Runtime(store, [agent])\n"
        "    runtime.start('a').send('hello').result()\n"
    )
    assert not HEAVY & loaded


def test_opening_a_store_does_not_load_the_turn_modules() -> None:
    loaded = loaded_by(
        "import asyncio, perdure\n"
        "async def first() -> None:\n"
        "    async with perdure.open('memory:'):\n"
        "        pass\n"
        "asyncio.run(first())"
    )
    assert "perdure.client.session" in loaded
    later = ("perdure.context", "perdure.engine.turns", "perdure.engine.windows", "perdure.models")
    assert [name for name in loaded if name.startswith(later)] == []
    assert not {"perdure.tools.spec", "perdure.client.conversation.authority"} & loaded
