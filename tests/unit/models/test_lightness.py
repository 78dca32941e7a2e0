"""`perdure.models` imports provider, HTTP and YAML libraries only when they are needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "pydantic",
    "pydantic_ai",
    "openai",
    "anthropic",
    "google.genai",
    "keyring",
    "httpx2",
    "httpx",
    "genai_prices",
    "anyio",
)


def loaded_by(*modules: str) -> set[str]:
    program = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(output.stdout.split())


def test_protocol_and_scripted_model_import_no_large_library() -> None:
    names = (
        "protocol",
        "stream",
        "retry",
        "router",
        "catalogue",
        "keys",
        "scenario",
        "scripted",
        "echo",
    )
    loaded = loaded_by(*(f"perdure.models.{name}" for name in names))
    assert not loaded & {*HEAVY, "ruamel.yaml"}


@pytest.mark.parametrize("module", ["models.scenario_yaml", "yaml.nodes", "yaml.writer"])
def test_import_of_a_yaml_reader_loads_no_yaml_library(module: str) -> None:
    assert not loaded_by(f"perdure.{module}") & {*HEAVY, "ruamel.yaml"}


def test_reading_yaml_imports_only_the_yaml_library() -> None:
    loaded = loaded_by("perdure.yaml.parser")
    assert "ruamel.yaml" in loaded
    assert not loaded & set(HEAVY)
