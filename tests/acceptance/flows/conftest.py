"""The `World` of the command line's own tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A folder without a store."""
    return World(tmp_path)
