"""What can be wrong with a workflow document."""

from __future__ import annotations

from typing import ClassVar

from perdure.errors.engine import FormatError


class InvalidWorkflow(FormatError):
    """A file is no workflow that can be used. `faults` are all of them, each with its line."""

    code: ClassVar[str] = "invalid_workflow"

    def __init__(self, name: str, faults: tuple[str, ...]) -> None:
        super().__init__(name, f"it is no workflow yet; put right: {'; '.join(faults)}")
        self.faults = faults
