"""Repairing a damaged store."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import cast

import msgspec

from perdure.client.clock import SystemClock, system_random
from perdure.client.keys import configured_key
from perdure.client.maintenance.backup import SQLITE, upkeep_of_sqlite
from perdure.client.maintenance.whole_store import Report, place_of, present_keys, untold
from perdure.client.open import default_address
from perdure.client.open import open as open_store
from perdure.errors import (
    ConfigError,
    CorruptLog,
    EntryNotFound,
    KeyWrong,
    NotAStore,
    PerdureError,
    StoreCorrupt,
    StoreError,
    StoreExists,
    Unsupported,
)
from perdure.stores.copy import NAME_OF_CONTENT
from perdure.stores.key import StoreKey
from perdure.stores.maintenance.repair import NamespaceRepair, in_order, parents_in
from perdure.stores.maintenance.salvage import SalvagedNamespace
from perdure.stores.maintenance.segments import StreamSegment
from perdure.stores.protocol import Problem
from perdure.stores.session_store import SessionStore
from perdure.stores.verification import is_content_lost

_HOLDING = ("sqlite", "postgres", "postgresql")
"""Schemes of stores that can say of an entry that its body is gone, and outlast the repair."""


class RepairReport(msgspec.Struct, frozen=True):
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
    namespace: str = "default",
    key: bytes | str | StoreKey | None = None,
    on_progress: Report | None = None,
) -> RepairReport:
    """Make the damaged store at `address` whole again, or a whole one at `to` of it.

    Every entry that can be read keeps its id, place and digest. Where a body is damaged, digest and
    chain stay; where an entry is gone, another stands in its place that says so, and the chain is
    computed anew from there. The search index is built anew. The damaged store is kept aside, or,
    with `to`, left as it is. A store without a fault is left alone. An SQLite file is repaired with
    all its namespaces; of another store `namespace`, and always into `to`, which holds nothing yet.
    `on_progress` is told how far each step is: the check, what is kept, the check of that.
    Durable: on return; killed before, the store is as it was.
    Raises: StoreInUse while anybody has it open; StoreExists when there is something at `to`;
    KeyMissing; KeyWrong when `key` opens no page of the file; ConfigError without the `to` that is
    needed, and for one that cannot hold a repaired store; Unsupported for a store that cannot be
    repaired.
    """
    address = address or default_address(os.environ, sys.platform)
    _check_target(address, to)
    if not address.startswith(SQLITE):
        return await _elsewhere(address, to, namespace, key, on_progress)
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
    at = SystemClock().now_ms()
    work = partial(upkeep_of_sqlite("repair").repair, at=at, to=target, told=on_progress)
    for number, present in enumerate(keys, 1):
        try:
            done = await asyncio.to_thread(work, path, present, system_random)
        except KeyWrong:
            if number == len(keys):
                raise
        else:
            return _parse_result(done)
    raise AssertionError("there is always a key to try, or None")


def _check_target(address: str, to: str | None) -> None:
    """Raises: ConfigError when what is left of the store at `address` cannot be kept in `to`."""
    if to is None:
        return
    if to.partition(":")[0] not in _HOLDING:
        raise ConfigError(
            f"{to} cannot store damaged sessions: name sqlite:///FILE or postgresql://..., "
            "and copy sessions from there"
        )
    if address.startswith(SQLITE) and not to.startswith(SQLITE):
        raise ConfigError(
            f"an SQLite store is repaired into another file, not into {to}: name sqlite:///FILE, "
            "and copy it from there"
        )


async def _elsewhere(
    address: str,
    to: str | None,
    namespace: str,
    key: bytes | str | StoreKey | None,
    on_progress: Report | None,
) -> RepairReport:
    """What can be read of the namespace at `address`, as a whole store at `to`."""
    kind = address.partition(":")[0]
    async with open_store(address, namespace=namespace) as source:
        backend = source.backend
        if kind == "memory":
            raise Unsupported("repair", kind)
        if to is None:
            reason = "is repaired into another store: name that store"
            raise ConfigError(f"a {kind} store {reason}, such as sqlite:///repaired.db")
        if (await backend.maintenance.verify(on_progress)).is_ok:
            return RepairReport(
                store=backend.address,
                is_damaged=False,
                streams=0,
                entries=0,
                losses=(),
                changed=(),
                aside=None,
            )
        found = await backend.maintenance.salvage_namespace()
        async with open_store(to, namespace=namespace, key=key) as target:
            return await _write_repaired(found, backend, target.backend, on_progress)


async def _write_repaired(
    found: SalvagedNamespace,
    source: SessionStore,
    target: SessionStore,
    on_progress: Report | None,
) -> RepairReport:
    """Write what is left into `target`, an origin before its forks, and check it."""
    if await target.maintenance.segment_states():
        raise StoreExists(target.address)
    named = {*parents_in(row for each in found.streams for row in each.rows.values())}
    headers = [each.header for each in found.streams if each.header is not None]
    named |= {header.fork.leaf for header in headers if header.fork and header.fork.leaf}
    mending = NamespaceRepair(named, system_random, SystemClock().now_ms())
    losses, changed, contents = [*found.losses], list[str](), _Contents(source)
    report = on_progress or untold
    for done, remains in enumerate(in_order(found.streams), 1):
        mended = mending.repair_stream(remains)
        sealed, stream = mended.sealed, mended.sealed.header.id
        losses += mended.losses
        changed += [] if mended.is_same else [stream]
        try:
            await target.maintenance.receive(sealed, [each async for each in contents.of(sealed)])
        except PerdureError as error:
            losses.append(Problem(stream, None, f"it could not be saved ({error})"))
        report(done, len(found.streams))
    problems = (await target.maintenance.verify(on_progress)).problems
    for problem in problems:
        if not is_content_lost(problem):
            raise StoreCorrupt(target.address, f"it was not repaired whole: {problem.problem}")
    facts = await target.info()
    losses += problems
    losses += [Problem(None, None, f"the content {name} is damaged") for name in contents.lost]
    return RepairReport(
        store=target.address,
        is_damaged=True,
        streams=facts.streams,
        entries=facts.entries,
        losses=tuple(losses),
        changed=tuple(changed),
        aside=None,
    )


class _Contents:
    """The contents of a damaged store, each given once. `lost` are those that are not whole."""

    def __init__(self, source: SessionStore) -> None:
        self._source = source
        self._passed: set[str] = set()
        self.lost: list[str] = []

    async def of(self, sealed: StreamSegment) -> AsyncIterator[bytes]:
        """Those that entries of `sealed` name."""
        names = {
            name.decode()
            for row in sealed.entries()
            for name in NAME_OF_CONTENT.findall(row.entry.body)
        }
        for name in sorted(names - self._passed):
            self._passed.add(name)
            try:
                yield await self._source.blob(name)
            except EntryNotFound:
                continue  # a text that only looks like the name of a content
            except (StoreError, CorruptLog):
                self.lost.append(name)


def _parse_result(done: msgspec.Struct) -> RepairReport:
    facts = cast("dict[str, object]", msgspec.structs.asdict(done))
    store = SQLITE + str(Path(str(facts["store"])))
    return msgspec.convert({**facts, "store": store}, RepairReport)
