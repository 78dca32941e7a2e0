"""The contracts: texts that every role of a flow receives. Contracts are versioned package data."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from perdure.engine.flows.prompts.entry import Contracts

VERSION = "v1"


@cache
def contracts() -> Contracts:
    """Return the contracts in the version that belongs to this version of perdure."""
    folder = files("perdure") / "data" / "flows" / VERSION
    return Contracts(
        **{
            name: (folder / f"{name.replace('_', '-')}.md").read_text(encoding="utf-8")
            for name in Contracts.__struct_fields__
        }
    )
