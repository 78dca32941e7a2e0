"""The choice of a runner. tests/integration/cluster/test_runners.py tests what runners do."""

from __future__ import annotations

import pytest

from perdure.client.agents.runners import RUNNER, EmbeddedRunner, runner_of
from perdure.client.cluster.runner import DbosRunner
from perdure.errors import ConfigError


def test_default_runner_is_embedded() -> None:
    assert isinstance(runner_of(None, {}), EmbeddedRunner)
    assert isinstance(runner_of(None, {RUNNER: ""}), EmbeddedRunner)
    assert isinstance(runner_of(None, {RUNNER: "workers"}), DbosRunner)


def test_runner_argument_has_priority_over_the_environment() -> None:
    assert isinstance(runner_of("embedded", {RUNNER: "workers"}), EmbeddedRunner)


def test_error_for_an_unknown_runner_in_the_environment_lists_the_known_runners() -> None:
    with pytest.raises(ConfigError, match="'celery' in \\$PERDURE_RUNNER: use embedded or workers"):
        runner_of(None, {RUNNER: "celery"})
