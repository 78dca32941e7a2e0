"""Scripted models from files: ``scripted:trip.yaml`` plays the scenario in ``trip.yaml``.

A file is read at the first use of its scenario, and again after the file has changed. A model name
that does not name a file selects a built-in scenario.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import msgspec

from perdure.errors import ConfigError, ModelRefused
from perdure.models.protocol import Delta, ModelInfo, ModelRequest
from perdure.models.scenario import Scenario
from perdure.models.scripted import ScriptedModel
from perdure.session.clock import Clock

ENDINGS = (".yaml", ".yml")

_SCENARIO_YAML = "perdure.models.scenario_yaml"


class FiledScripts:
    """A `ModelClient` for ``scripted:`` models, including those that name a scenario file."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._named = ScriptedModel(clock=clock)
        self._filed: dict[str, tuple[int, ScriptedModel]] = {}

    def require(self, model: str) -> None:
        """Check that `model` has a valid scenario.

        Raises: ConfigError if the scenario is unknown, if its file cannot be read, or if the file
        has faults (listed with their lines).
        """
        self._client(model).require(model)

    def info(self, model: str) -> ModelInfo:
        try:
            return self._client(model).info(model)
        except ConfigError:
            return ModelInfo(model)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        try:
            client = self._client(request.model)
        except ConfigError as error:
            raise ModelRefused(request.model, str(error)) from error
        async for delta in client.stream(request):
            yield delta

    def _client(self, model: str) -> ScriptedModel:
        name = model.partition(":")[2]
        if not name.endswith(ENDINGS):
            return self._named
        file = Path(name).expanduser()
        changed_ns = file.stat().st_mtime_ns if file.is_file() else 0
        known = self._filed.get(name)
        if known is None or known[0] != changed_ns:
            scenario = msgspec.structs.replace(_loaded(file), name=name)
            known = (changed_ns, ScriptedModel(scenario, clock=self._clock))
            self._filed[name] = known
        return known[1]


def _loaded(file: Path) -> Scenario:
    # Imported lazily: only file scenarios need a YAML library.
    return cast("Scenario", importlib.import_module(_SCENARIO_YAML).load_scenario(file))
