"""What can be wrong with the files that people write: workflows, agents, settings."""

from __future__ import annotations

from typing import ClassVar

from perdure.errors.engine import ConfigError, FormatError


class InvalidWorkflow(FormatError):
    """A file is no workflow that can be used. `faults` are all of them, each with its line."""

    code: ClassVar[str] = "invalid_workflow"

    def __init__(self, name: str, faults: tuple[str, ...]) -> None:
        super().__init__(name, f"it is no workflow yet; put right: {'; '.join(faults)}")
        self.faults = faults


class InvalidAgentFile(ConfigError):
    """A file describes no agent that can be used. `faults` are all of them, each with its line."""

    code: ClassVar[str] = "invalid_agent_file"

    def __init__(self, name: str, faults: tuple[str, ...]) -> None:
        super().__init__(f"{name}: it is no agent file yet; put right: {'; '.join(faults)}")
        self.file = name
        self.faults = faults


class InvalidSettings(ConfigError):
    """A settings file holds what nobody reads. `faults` are all of them, each with its line."""

    code: ClassVar[str] = "invalid_settings"

    def __init__(self, name: str, faults: tuple[str, ...]) -> None:
        super().__init__(f"{name}: put right: {'; '.join(faults)}")
        self.file = name
        self.faults = faults
