"""``perdure store repair``."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.exits import DONE, FAILED
from perdure.apps.cli.store_options import CommonOptions, existing_address
from perdure.apps.maintenance.trust import TrustOption, trust_store
from perdure.apps.maintenance.whole_store import (
    SQLITE,
    Report,
    place_of,
    present_keys,
    upkeep_of_sqlite,
    with_key,
)
from perdure.apps.progress import progress_bar, untold
from perdure.apps.terminal.advice import with_commands
from perdure.apps.terminal.output import count_of, out_style
from perdure.apps.terminal.text import safe
from perdure.client.clock import SystemClock, system_random
from perdure.client.keys import configured_key
from perdure.client.lookup.store_files import address_or_default
from perdure.client.open import open as open_store
from perdure.client.routes import routed
from perdure.errors import (
    ConfigError,
    CorruptLog,
    EntryNotFound,
    NotAStore,
    PerdureError,
    StoreCorrupt,
    StoreError,
    StoreExists,
    Unsupported,
)
from perdure.stores.key import StoreKey
from perdure.stores.maintenance.protocol import RepairReport
from perdure.stores.maintenance.repair import (
    NamespaceRepair,
    SalvagedNamespace,
    in_order,
    parents_in,
)
from perdure.stores.maintenance.segments import StreamSegment
from perdure.stores.protocol import Problem
from perdure.stores.session_store import SessionStore
from perdure.stores.validation import names_in
from perdure.stores.verification import is_content_lost

_HOLDING = ("sqlite", "postgres", "postgresql")
"""Schemes of persistent stores that can record that the body of an entry is lost."""


async def repair_store(
    address: str | None = None,
    *,
    to: str | None = None,
    namespace: str = "default",
    key: bytes | str | StoreKey | None = None,
    on_progress: Report | None = None,
) -> RepairReport:
    """Repair the damaged store at `address` in place, or into a new store at `to`.

    Every readable entry keeps its id, its position and its digest. If only the body of an entry is
    damaged, its digest and the hash chain stay the same. A placeholder replaces a lost entry, and
    the hashes of the chain are recomputed from this entry on. The search index is rebuilt. If `to`
    is given, the damaged store stays unchanged; otherwise, it is moved to another folder. A store
    without damage is not changed. For an SQLite file, all namespaces are repaired. For any other
    store, only `namespace` is repaired, and `to` must be an empty store. `on_progress` receives the
    progress of each step: the check of the store, the copy, and the check of the copy.
    Durable: the repaired store is on disk when this call returns; after a kill, the store is
    unchanged.
    Raises: StoreInUse if another process has the store open; StoreExists if `to` is not empty;
    KeyMissing if there is no key; KeyWrong if `key` decrypts no page of the file; ConfigError if
    `to` is missing or unsuitable; Unsupported if the store cannot be repaired.
    """
    address = routed(address_or_default(address, os.environ, sys.platform), namespace)
    _check_target(address, to)
    if not address.startswith(SQLITE):
        return await _elsewhere(address, to, namespace, key, on_progress)
    address, path = place_of(address, "repair")
    target = None if to is None else place_of(to, "repair")[1].absolute()
    try:
        keys = await present_keys(address, path, key)
    except StoreCorrupt:  # its damaged header looks like a plain store's
        keys = (None,)
    except NotAStore:  # its header is too damaged to tell without a key
        configured = configured_key(key, os.environ, address)
        if configured is None:
            raise
        keys = (configured,)
    at = SystemClock().now_ms()
    work = partial(upkeep_of_sqlite("repair").repair, at=at, to=target, told=on_progress)
    _, done = await with_key(keys, lambda present: work(path, present, system_random))
    return msgspec.structs.replace(done, store=SQLITE + done.store)


def _check_target(address: str, to: str | None) -> None:
    """Raises: ConfigError if the repaired store of `address` cannot be written to `to`."""
    if to is None:
        return
    if to.partition(":")[0] not in _HOLDING:
        raise ConfigError(
            f"{to} cannot store damaged sessions: name sqlite:///FILE or postgresql://..., "
            "and copy sessions from there with `perdure store copy`"
        )
    if address.startswith(SQLITE) and not to.startswith(SQLITE):
        raise ConfigError(
            f"an SQLite store is repaired into another file, not into {to}: name sqlite:///FILE, "
            "and `perdure store copy` it from there"
        )


async def _elsewhere(
    address: str,
    to: str | None,
    namespace: str,
    key: bytes | str | StoreKey | None,
    on_progress: Report | None,
) -> RepairReport:
    """Write the readable data of a namespace of the store at `address` to the empty store `to`."""
    kind = address.partition(":")[0]
    async with open_store(address, namespace=namespace) as source:
        backend = source.backend
        if kind == "memory":
            raise Unsupported("repair", kind)
        if to is None:
            reason = "is repaired into another store: name that store with --to"
            raise ConfigError(f"a {kind} store {reason}, such as sqlite:///repaired.db")
        if (await backend.maintenance.verify(on_progress)).is_ok:
            return RepairReport(backend.address, is_damaged=False)
        found = await backend.maintenance.salvage_namespace()
        async with open_store(to, namespace=namespace, key=key) as target:
            return await _write_repaired(found, backend, target.backend, on_progress)


async def _write_repaired(
    found: SalvagedNamespace,
    source: SessionStore,
    target: SessionStore,
    on_progress: Report | None,
) -> RepairReport:
    """Write salvaged streams to `target`, each origin before its forks, then check `target`."""
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
            losses.append(Problem(stream, None, f"the session could not be saved ({error})"))
        report(done, len(found.streams))
    problems = (await target.maintenance.verify(on_progress)).problems
    for problem in problems:
        if not is_content_lost(problem):
            raise StoreCorrupt(target.address, f"the repaired store is damaged: {problem.problem}")
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
    )


class _Contents:
    """Reads the blobs of a damaged store, such as images; reads each blob only once.

    `lost` lists the names of damaged blobs.
    """

    def __init__(self, source: SessionStore) -> None:
        self._source = source
        self._passed: set[str] = set()
        self.lost: list[str] = []

    async def of(self, sealed: StreamSegment) -> AsyncIterator[bytes]:
        """Yield the contents of the blobs that entries of `sealed` refer to.

        Blobs that were read before are skipped.
        """
        names = names_in(row.entry.body for row in sealed.entries())
        for name in sorted(names - self._passed):
            self._passed.add(name)
            try:
                yield await self._source.blob(name)
            except EntryNotFound:
                continue  # text that only looks like the name of a content
            except (StoreError, CorruptLog):
                self.lost.append(name)


async def repair(
    *,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Write the repaired store to this new SQLite file or empty PostgreSQL database. "
            "This option is required unless the damaged store is an SQLite file.",
        ),
    ] = None,
    is_trusting: TrustOption = False,
    common: CommonOptions,
) -> int:
    """Repair a damaged store: keep every readable entry, and list the losses.

    An SQLite file is repaired in its place, and the damaged file is moved to the folder
    NAME-damaged. With --to, the damaged store stays unchanged. A PostgreSQL store and session files
    need --to, and each run repairs one namespace. A store without damage stays unchanged.

    Examples:
        perdure store repair --store sqlite:///agents.db
        perdure store repair --store postgresql://me@host/agents --to sqlite:///repaired.db
        perdure store repair --store jsonl:///sessions --to sqlite:///repaired.db

    Exit codes:
        1  some data was lost
    """
    address = existing_address(common.store)

    bar = progress_bar("repair")
    done = await repair_store(address, to=to, namespace=common.namespace, on_progress=bar)
    if is_trusting:
        await trust_store(to or address, common.namespace)
    common.show(done, _repair_lines(done))
    return FAILED if done.losses else DONE


def _repair_lines(done: RepairReport) -> Iterator[str]:
    style = out_style()
    if not done.is_damaged:
        ok = style.paint("ok", "good")
        yield f"{ok}  nothing is wrong with {safe(done.store)}; it was left alone"
        return
    lost = len({(loss.stream, loss.seq) for loss in done.losses if loss.seq is not None})
    if lost:
        told = f"{count_of(lost, 'entry is', 'entries are')} lost"
        yield f"{told}; the rest of {safe(done.store)} is whole again"
    elif done.losses:
        yield f"Something is lost; the rest of {safe(done.store)} is whole again"
    else:
        stored = f"{count_of(done.entries, 'entry', 'entries')} in {count_of(done.streams, 'log')}"
        yield f"{safe(done.store)} is whole again: {stored}"
        yield "Nothing was lost."
    for place, problem in _losses(done.losses):
        yield f"  {style.paint('lost', 'bad')}  {safe(place)}: {safe(with_commands(problem))}"
    if done.changed:
        names = ", ".join(safe(name) for name in done.changed)
        yield f"The hashes of {names} have changed, from the first lost entry on."
    if done.aside is not None:
        yield f"The damaged store is now in {safe(done.aside)}, with a report."


def _losses(losses: Iterable[Problem]) -> Iterator[tuple[str, str]]:
    """Yield the place and the problem of each loss.

    Consecutive entries with the same problem are reported as one loss.
    """
    runs: list[tuple[Problem, int | None]] = []
    for loss in losses:
        first, last = runs[-1] if runs else (None, None)
        is_next = last is not None and loss.seq == last + 1
        place = (loss.stream, loss.problem)
        if first is not None and is_next and place == (first.stream, first.problem):
            runs[-1] = (first, loss.seq)
        else:
            runs.append((loss, loss.seq))
    for first, last in runs:
        seqs = str(first.seq) if first.seq == last else f"{first.seq}-{last}"
        parts = (first.stream, None if last is None else seqs)
        yield "/".join(part for part in parts if part is not None) or "store", first.problem
