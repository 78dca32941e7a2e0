"""``perdure store``: information about a store, and its verification."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from perdure.apps.cli import limits
from perdure.apps.cli.exits import DONE, FAILED
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.cli.surface.groups import Group
from perdure.apps.progress import progress_bar
from perdure.apps.terminal.advice import with_commands
from perdure.apps.terminal.output import count_of, out_style, size
from perdure.apps.terminal.text import safe
from perdure.errors import CorruptLog, StoreCorrupt
from perdure.stores.protocol import Problem, StoreInfo, Verification

HELP = """Verify, back up, repair, copy and measure a store.

Examples:
    perdure store info
    perdure store verify --store sqlite:///agents.db
"""

_PLACES = {
    "rekey": "perdure.apps.maintenance.rekey:rekey",
    "vacuum": "perdure.apps.maintenance.commands:vacuum",
    "migrate": "perdure.apps.maintenance.commands:migrate",
    "copy": "perdure.apps.maintenance.copy:copy",
    "backup": "perdure.apps.maintenance.backup:backup",
    "restore": "perdure.apps.maintenance.restore:restore",
    "repair": "perdure.apps.maintenance.repair:repair",
    "stats": "perdure.apps.maintenance.stats:stats",
    "trust": "perdure.apps.maintenance.trust:trust",
}

store_commands = Group(_PLACES, help=HELP, no_args_is_help=True)
store_commands.add_typer(limits.retention_commands, name="retention")
store_commands.add_typer(limits.quota_commands, name="quota")


@store_commands.command("info")
async def info(*, common: CommonOptions) -> None:
    """Show the location, contents and encryption of the store.

    The counts and sizes describe the namespace; the size of the store includes the whole file or
    database.

    Examples:
        perdure store info
        perdure store info --json --store sqlite:///agents.db

    Exit codes:
        3  the store does not exist
    """
    async with common.existing_store() as opened:
        facts = await opened.info()
    common.show(msgspec.structs.asdict(facts), _info_lines(facts))


def _info_lines(facts: StoreInfo) -> Iterator[str]:
    style = out_style()
    rows = (
        ("store", facts.address),
        ("backend", f"{facts.backend} ({facts.engine}), schema {facts.schema_version}"),
        ("namespace", facts.namespace),
        (
            "holds",
            f"{count_of(facts.streams, 'log')}, {count_of(facts.entries, 'entry', 'entries')}",
        ),
        ("size", _size(facts)),
        ("durability", _DURABILITY.get(facts.durability, facts.durability)),
        ("encryption", _encryption(facts)),
    )
    for name, value in rows:
        yield f"{style.paint(name.ljust(10), 'faint')}  {safe(value)}"


_DURABILITY = {
    "full": "full: commits survive power loss",
    "normal": "normal: commits survive kill -9, but not power loss",
    "none": "none: all of it ends with this process",
}


def _size(facts: StoreInfo) -> str:
    if not facts.payload_bytes:
        return (
            "nothing yet" if facts.durability == "none" else f"{size(facts.size_bytes)}, no content"
        )
    content = f"{size(facts.payload_bytes)} of content"
    if facts.durability == "none":
        return content
    overhead = f"{facts.size_bytes / facts.payload_bytes:.2f} x"
    return f"{size(facts.size_bytes)} for {content}, {overhead}"


def _encryption(facts: StoreInfo) -> str:
    if facts.is_encrypted:
        return f"encrypted with {facts.cipher}"
    if facts.durability == "none":
        return "not needed: nothing is written to disk"
    return "plain: anyone who can read the file can read all sessions"


@store_commands.command("verify")
async def verify(*, common: CommonOptions) -> int:
    """Check every hash, parent and count.

    Reads the whole namespace and changes nothing. Reports damage with session and entry.

    Examples:
        perdure store verify
        perdure store verify --json | jq .problems

    Exit codes:
        1  errors were found
        3  the store does not exist
    """
    found = await _verify(common)
    common.show(verification_data(found), _verification_lines(found))
    return DONE if found.is_ok else FAILED


async def _verify(common: CommonOptions) -> Verification:
    """Verify the store; damage that prevents further reading becomes a problem in the result."""
    try:
        async with common.existing_store() as opened:
            return await opened.verify(progress_bar("verify"))
    except StoreCorrupt as error:
        return Verification(0, 0, (Problem(None, None, error.reason),))
    except CorruptLog as error:
        seq = error.seq if error.seq >= 0 else None
        return Verification(0, 0, (Problem(error.stream, seq, error.reason),))


@store_commands.command("reindex")
async def reindex(*, common: CommonOptions) -> None:
    """Rebuild the search index from the log.

    Use this command if a search reports a damaged index. Search results do not change.

    Examples:
        perdure store reindex
    """
    async with common.existing_store() as opened:
        count = await opened.reindex(progress_bar("index"))
    common.show({"texts": count}, f"{count_of(count, 'text')} can be found.")


def verification_data(found: Verification) -> dict[str, object]:
    """Return the result of `verify` as JSON data."""
    return {
        "ok": found.is_ok,
        "streams": found.streams,
        "entries": found.entries,
        "erased": found.erased,
        "cut_off": [msgspec.structs.asdict(each) for each in found.cut_off],
        "problems": [_problem_data(problem) for problem in found.problems],
    }


def _problem_data(found: Problem) -> dict[str, object]:
    return {**msgspec.structs.asdict(found), "problem": with_commands(found.problem)}


def _verification_lines(found: Verification) -> Iterator[str]:
    style = out_style()
    looked_at = f"{count_of(found.entries, 'entry', 'entries')} in {count_of(found.streams, 'log')}"
    if found.erased:
        looked_at += f" ({found.erased:,} erased)"
    if found.is_ok:
        yield f"{style.paint('ok', 'good')}  {looked_at}: every hash, parent and count is right"
        yield from _problem_lines(found.cut_off)
        return
    problems = count_of(len(found.problems), "problem")
    yield f"{style.paint('damaged', 'bad')}  {looked_at}: {problems}"
    yield from _problem_lines((*found.problems, *found.cut_off))
    yield "Nothing was changed. Back it up, or copy its files away, before anything writes to it;"
    yield "`perdure store repair` then keeps what can be read, and `store reindex` mends an index."


def _problem_lines(problems: Iterable[Problem]) -> Iterator[str]:
    for problem in problems:
        place = "/".join(str(part) for part in (problem.stream, problem.seq) if part is not None)
        yield f"  {safe(place or 'store')}: {safe(with_commands(problem.problem))}"
