"""``perdure store copy``: copies sessions between stores of any kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.exits import CONFLICT, DONE, FAILED, UsageMistake
from perdure.apps.cli.store_options import CommonOptions, existing_address, require_store_folder
from perdure.apps.maintenance.trust import TrustOption
from perdure.apps.progress import progress_bar, untold
from perdure.apps.session_rows import with_all_forks
from perdure.apps.store_access import copied_store
from perdure.apps.terminal.output import count_of
from perdure.apps.terminal.text import safe
from perdure.client.clock import SystemClock, system_random
from perdure.client.keys import canonical, key_in_file
from perdure.client.open import open as open_store
from perdure.client.store import Store
from perdure.client.trust import trust_folder
from perdure.interop.bundle import bundle_of
from perdure.session.ids import StreamId
from perdure.stores.copy import CopyReport, Progress, StoreCopy, Whole, with_origins
from perdure.stores.session_store import SessionStore


async def copy_sessions(
    source: Store,
    target: Store,
    *,
    sessions: Sequence[str] | None = None,
    on_progress: Progress | None = None,
) -> CopyReport:
    """Copy the sessions and flows in `source`, or only `sessions`, to the namespace of `target`.

    The copy contains the entries that existed when the call began; other processes can write to
    both stores meanwhile. A repeated call continues an interrupted copy, and adds entries that are
    new in the source. Entries keep their ids, salts, digests and hashes. A fork still refers to the
    entries of its origin, so the copy includes the origin. If the target cannot store a session
    with the same hashes, the copy computes new hashes, and the report says so. Leases and
    idempotency keys are not copied.
    Shape: each of `sessions` is a complete id.
    Durable: the whole copy is stored when this call returns. If the call is interrupted, the parts
    that were committed remain.
    Raises: SessionNotFound if one of `sessions` does not exist; Unsupported if a store lacks an
    operation that the copy needs; the errors of reading and writing. The report lists sessions that
    are damaged, and sessions that differ between source and target.
    """
    giving, taking = source.backend, target.backend
    moment = await giving.maintenance.segment_states()
    if sessions is not None:
        chosen = [(await giving.state(StreamId(id))).header.id for id in sessions]
        moment = with_origins(moment, chosen)
    return await copy_of(giving, taking, on_progress).run(moment)


def copy_of(
    source: SessionStore, target: SessionStore, on_progress: Progress | None = None
) -> StoreCopy:
    """Copy from one backend to another."""

    async def whole_of(stream: StreamId) -> Whole:
        bundle = await bundle_of(source, stream)
        return Whole(bundle.header, bundle.entries, bundle.aliases)

    return StoreCopy(
        source,
        target,
        whole_of=whole_of,
        random=system_random,
        on_progress=on_progress or untold,
    )


TargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="The target store: sqlite:///FILE, jsonl:///FOLDER or "
        "postgresql://USER@HOST/DATABASE.",
    ),
]


async def copy(
    target: TargetArgument,
    *,
    sessions: Annotated[
        list[str] | None,
        typer.Option("--session", metavar="ID", help="Only this session."),
    ] = None,
    has_forks: Annotated[
        bool, typer.Option("--with-forks", help="Copy the forks of the sessions of --session too.")
    ] = False,
    target_namespace: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The namespace of the copy in the target store."),
    ] = None,
    target_key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with the key of the target store.")
    ] = None,
    is_trusting: TrustOption = False,
    common: CommonOptions,
) -> int:
    """Copy all sessions to another store of any kind, and verify their hashes.

    Other processes can write during the copy. Run the command again to continue after a kill, or to
    add new entries. You can also copy a store of the last version of perdure before its first
    release.

    Examples:
        perdure store copy postgresql://me@host/agents --store sqlite:///agents.db
        perdure store copy sqlite:///other.db --session 01jd --with-forks
    """
    if has_forks and not sessions:
        raise UsageMistake("--with-forks needs --session: without it all sessions are copied")
    address = existing_address(common.store)
    into = target_namespace or common.namespace
    if canonical(address) == canonical(target) and into == common.namespace:
        raise UsageMistake("source and target are the same; name another store or namespace")
    require_store_folder(target)
    key = None if target_key_file is None else key_in_file(target_key_file, target)
    async with (
        copied_store(address, common.namespace) as source,
        open_store(target, namespace=into, key=key) as there,
    ):
        chosen = [await source.find(each) for each in sessions or ()]
        chosen = await with_all_forks(source, chosen) if has_forks else chosen
        report = await _copy(source, there, chosen, is_trusting=is_trusting)
    common.show(copy_data(report), copy_lines(report, target))
    return exit_of(report)


async def _copy(
    source: Store, there: Store, chosen: Sequence[str], *, is_trusting: bool
) -> CopyReport:
    bar = progress_bar("copy")
    report = await copy_sessions(source, there, sessions=chosen or None, on_progress=bar)
    if is_trusting:
        copied = [StreamId(each.stream) for each in report.streams]
        await trust_folder().trust(there.backend, SystemClock().now_ms(), copied)
    return report


def exit_of(report: CopyReport) -> int:
    """Return the exit code for the report of a copy."""
    if any(each.outcome == "conflict" for each in report.streams):
        return CONFLICT
    return DONE if report.is_whole else FAILED


def copy_data(report: CopyReport) -> dict[str, object]:
    """Return `report` as JSON data."""
    return {
        "ok": report.is_whole,
        "entries": report.added_entries,
        "contents": report.contents,
        "lost_contents": list(report.lost_contents),
        "sessions": [msgspec.structs.asdict(each) for each in report.streams],
    }


def copy_lines(report: CopyReport, target: str) -> Iterator[str]:
    """Format `report` for people."""
    logs = count_of(sum(each.outcome != "erased" for each in report.streams), "log")
    entries = count_of(report.added_entries, "new entry", "new entries")
    yield f"{logs}, {entries} and {count_of(report.contents, 'content')} in {safe(target)}"
    for each in report.streams:
        if each.reason is not None:
            yield f"  {safe(each.stream)}: {each.outcome}: {safe(each.reason)}"
    for name in report.lost_contents:
        yield f"  the content {name} is damaged and was left out"
    if report.is_whole:
        yield "Every head hash was compared."
    else:
        yield "Not everything was copied, see above. The copied sessions are complete."
