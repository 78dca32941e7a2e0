"""One Chromium for all tests of consoles and widgets.

Each test has a browser context of its own, which shares no cookies, storage or connections with
others.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.fakes.chromium import SharedChromium, sharing
from tests.fakes.forked import preload
from tests.fakes.forked_commands import SERVERS

preload(*SERVERS)

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run every test that uses Chromium in the event loop in which Chromium was started."""
    for item in items:
        if item.path.is_relative_to(HERE) and "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_chromium() -> AsyncGenerator[SharedChromium]:
    """Share one Chromium until the last test."""
    async with sharing() as shared:
        yield shared


@pytest_asyncio.fixture(loop_scope="session")
async def chromium(chromium: str, shared_chromium: SharedChromium) -> Browser:
    """Return the running Chromium."""
    return await shared_chromium.running(chromium)
