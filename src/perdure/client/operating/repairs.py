"""Repairing a damaged store."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import cast

import msgspec

from perdure.client.clock import SystemClock, system_random
from perdure.client.keys import configured_key
from perdure.client.operating.backups import SQLITE, upkeep_of_sqlite
from perdure.client.upkeep import place_of, present_keys
from perdure.errors import KeyWrong, NotAStore, StoreCorrupt
from perdure.stores.key import StoreKey
from perdure.stores.protocol import Problem


class Repaired(msgspec.Struct, frozen=True):
    """What a repair did.

    Shape: `entries` counts what is in the repaired store, `losses` name what is not, by stream and
    seq. `changed` are the sessions whose hashes are others now: an entry is gone from them.
    `aside` is the folder in which the damaged store is kept, as it was, with a report.
    """

    store: str
    is_damaged: bool
    streams: int
    entries: int
    losses: tuple[Problem, ...]
    changed: tuple[str, ...]
    aside: str | None


async def repair(
    address: str | None = None,
    *,
    to: str | None = None,
    key: bytes | str | StoreKey | None = None,
) -> Repaired:
    """Make the damaged SQLite store at `address` whole again, or a whole one at `to` of it.

    Every entry that can be read keeps its id, place and digest. Where a body is damaged, digest and
    chain stay; where an entry is gone, another stands in its place that says so, and the chain is
    computed anew from there. The search index is built anew. The damaged store is kept aside, or,
    with `to`, left as it is. A store without a fault is left alone.
    Durable: on return; killed before, the store is as it was.
    Raises: StoreInUse while anybody has it open; StoreExists when there is something at `to`;
    KeyMissing; KeyWrong when `key` opens no page of the file; Unsupported for other stores.
    """
    address, path = place_of(address, "repair")
    target = None if to is None else place_of(to, "repair")[1].absolute()
    try:
        keys = await present_keys(address, path, key)
    except StoreCorrupt:  # its beginning is damaged, and is that of a plain store
        keys = (None,)
    except NotAStore:  # so much of its beginning is damaged that only a key can tell
        configured = configured_key(key, os.environ, address)
        if configured is None:
            raise
        keys = (configured,)
    work = upkeep_of_sqlite("repair").repair
    for number, present in enumerate(keys, 1):
        try:
            done = await asyncio.to_thread(
                work, path, present, system_random, at=SystemClock().now_ms(), to=target
            )
        except KeyWrong:
            if number == len(keys):
                raise
        else:
            return _told(done)
    raise AssertionError("there is always a key to try, or None")


def _told(done: msgspec.Struct) -> Repaired:
    facts = cast("dict[str, object]", msgspec.structs.asdict(done))
    store = SQLITE + str(Path(str(facts["store"])))
    return msgspec.convert({**facts, "store": store}, Repaired)
