"""A store in memory for the chats of the tests in this folder."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

import perdure
from perdure.client.store import Store


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    """An empty store."""
    async with perdure.open("memory:") as opened:
        yield opened
