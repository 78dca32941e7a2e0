"""Open a store by its address."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from perdure.errors import ConfigError
from perdure.stores.jsonl.services import SCHEME
from perdure.stores.jsonl.store import CODECS, JsonlStore
from perdure.stores.protocol import durability_of
from perdure.stores.regular_files import open_to_read

_FILES = 20
"""Maximum number of files checked when a folder is opened."""

_HEAD_BYTES = 2**16


async def open_jsonl(address: str, *, durability: str, **options: Any) -> JsonlStore:
    """Open the store at ``jsonl:///folder[?dialect=operator|pi]`` (or ``jsonl:////absolute``).

    `options` are passed to `JsonlStore.open`.
    Raises: ConfigError if the address, dialect or durability is invalid, or if the files in the
    folder have another dialect. The call also raises the errors of `JsonlStore.open`.
    """
    parts = urlsplit(address)
    folder = unquote(parts.path.removeprefix("/"))
    if not address.startswith(SCHEME) or not folder:
        raise ConfigError(f"{address} names no folder: use {SCHEME}folder or {SCHEME}/folder")
    query = parse_qs(parts.query, keep_blank_values=True)
    name = query.pop("dialect", ["operator"])[-1]
    if query or name not in CODECS:
        raise ConfigError(f"{address}: the only option is ?dialect=operator or ?dialect=pi")
    other = await asyncio.to_thread(_of_another_dialect, Path(folder), name)
    if other is not None:
        file, dialect = other
        raise ConfigError(
            f"{address} is read as {name}, but {file.name} is a session file of {dialect}, which "
            f"could not read what is appended; use {SCHEME}{folder}?dialect={dialect}"
        )
    return await JsonlStore.open(
        Path(folder),
        dialect="pi" if name == "pi" else "operator",
        durability=durability_of(durability),
        **options,
    )


class _Head(msgspec.Struct):
    """The fields of a file's first line that show its dialect; only pi writes the time as text."""

    type: str
    timestamp: str | float


_head = msgspec.json.Decoder(_Head)


def _of_another_dialect(folder: Path, dialect: str) -> tuple[Path, str] | None:
    """Return a file whose dialect is not `dialect`, and its dialect; check only few files."""
    with suppress(OSError):
        for file in islice(folder.glob("*.jsonl"), _FILES):
            found = _dialect_of(file)
            if found is not None and found != dialect:
                return file, found
    return None


def _dialect_of(file: Path) -> str | None:
    try:
        with open_to_read(file) as opened:
            head = _head.decode(opened.readline(_HEAD_BYTES))
    except (OSError, ValueError):
        return None
    if head.type not in ("session", "session_header"):
        return None
    return "pi" if isinstance(head.timestamp, str) else "operator"
