"""The input of mutations: the fixtures, and the recordings if they exist."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from perdure.interop.exports import export_session
from perdure.interop.formats import registry
from tests.conftest import REPOSITORY
from tests.fakes.sources import FIXTURES, empty_store, every_file, imported

FORMATS = (*registry.FORMATS, "perdure")
"""Every format that an import can read."""

LARGEST_BYTES = 200_000
"""Of a longer file only the beginning is used, so that a case takes milliseconds."""


def corpus(format: str) -> list[bytes]:
    """The files of `format`."""
    if format == "perdure":
        return asyncio.run(_exports())
    folders = [FIXTURES / format.replace("-", "_"), _recordings() / format]
    endings = ("*.json*", "*.md")
    paths = sorted(path for folder in folders for each in endings for path in folder.glob(each))
    return [path.read_bytes()[:LARGEST_BYTES] for path in paths]


def _recordings() -> Path:
    named = os.environ.get("PERDURE_RECORDINGS")
    return Path(named) if named else REPOSITORY.parent / "shared" / "data" / "recordings"


async def _exports() -> list[bytes]:
    """Return perdure exports of every fixture."""
    store = empty_store()
    sessions = [(await imported(store, content)).session for content in every_file()]
    return [(await export_session(store, session)).content for session in sessions]
