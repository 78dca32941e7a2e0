"""Errors in files that people write: workflows, agents, settings."""

from __future__ import annotations

import re
from typing import ClassVar

from perdure.errors.engine import ConfigError, FormatError

_LINE = re.compile(r"^line (\d+): ")


class InvalidWorkflow(FormatError):
    """A file is not a valid workflow. `faults` are all errors, each with its line."""

    code: ClassVar[str] = "invalid_workflow"

    def __init__(self, name: str, faults: tuple[str, ...]) -> None:
        super().__init__(name, f"invalid workflow: {'; '.join(faults)}")
        self.faults = faults


class InvalidAgentFile(ConfigError):
    """A file is not a valid agent. `faults` are all errors, each with its line."""

    code: ClassVar[str] = "invalid_agent_file"

    def __init__(self, name: str, faults: tuple[str, ...]) -> None:
        super().__init__(_located(name, faults))
        self.file = name
        self.faults = faults


class InvalidSettings(ConfigError):
    """A settings file is invalid. `faults` are all errors, each with its line."""

    code: ClassVar[str] = "invalid_settings"

    def __init__(self, name: str, faults: tuple[str, ...]) -> None:
        super().__init__(_located(name, faults))
        self.file = name
        self.faults = faults


def _located(name: str, faults: tuple[str, ...]) -> str:
    """Return the faults with file and line, for example `config.toml:3: unknown key 'modle'`."""
    placed = (_LINE.subn(r":\1: ", fault, count=1) for fault in faults)
    return "; ".join(f"{name}{text}" if found else f"{name}: {text}" for text, found in placed)
