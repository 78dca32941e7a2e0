"""The steps before the crash (import, tree, context) and after it (branch, fork, search, check)."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
from itertools import pairwise
from pathlib import Path

from perdure.apps.demo.cast import ASKS_THE_OTHER_WAY, INDENT, MODEL, REMEMBERED, Stage
from perdure.apps.demo.crash import Play, is_answered, runtime_of
from perdure.apps.terminal.outline import draw, lines_of
from perdure.apps.terminal.output import count_of, size
from perdure.apps.terminal.previews import preview_of
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.interop.exports import export_session
from perdure.interop.imports import import_source
from perdure.interop.reports import ImportReport
from perdure.session.codec import body_of, role_of
from perdure.session.entries import Entry
from perdure.session.notes import ImportSource, source_of

TREE_LINES = 22
BRANCH_LINES = 12
_LABEL = "the other way"


async def bring_in(stage: Stage, store: Store, file: Path) -> ImportReport:
    """Import `file`, and check that no data was lost."""
    content = await asyncio.to_thread(file.read_bytes)
    report = await _import_file(store, file)
    lines = content.count(b"\n") + (not content.endswith(b"\n"))
    stage.say(f"{file.name}: {count_of(lines, 'line')}, {size(len(content))}, {report.format}")
    stage.say(
        f"session {report.session}: {count_of(report.entries, 'entry', 'entries')} added, "
        f"{count_of(report.messages, 'message')}"
    )
    if report.malformed:
        stage.say(f"unreadable lines, stored unchanged: {report.skipped}")
    unaccounted = await _unaccounted_lines(store, report, content)
    stage.claim("every line of the file is accounted for in the log", holds=not unaccounted)
    kept = await _kept_bytes(store, report)
    stage.claim("the store holds the file, byte for byte", holds=kept == content)
    if report.format == "pi" and report.is_new:
        exported = await export_session(store.backend, report.session, "pi")
        stage.claim("exported again, it is identical", holds=exported.content == content)
    again = await _import_file(store, file)
    stage.claim("imported a second time, it adds nothing", holds=again.entries == 0)
    return report


async def _import_file(store: Store, file: Path) -> ImportReport:
    outside = store.outside
    return await import_source(store.backend, file, clock=outside.clock, random=outside.random)


async def _unaccounted_lines(store: Store, report: ImportReport, content: bytes) -> list[int]:
    """Return the numbers of lines that are neither stored nor reported as unreadable."""
    entries = await store.backend.entries(report.session)
    starts = {source.offset for entry in entries if (source := source_of(entry.body)) is not None}
    malformed = {number for source in _sources(entries) for number in source.malformed}
    has_header = report.format == "pi"
    missing: list[int] = []
    offset = 0
    for number, line in enumerate(content.split(b"\n"), 1):
        is_header = has_header and bool(line.strip())
        if line.strip() and not is_header and offset not in starts and number not in malformed:
            missing.append(number)
        has_header = has_header and not is_header
        offset += len(line) + 1
    return missing


def _sources(entries: list[Entry]) -> list[ImportSource]:
    bodies = [body_of(entry) for entry in entries if entry.kind == ImportSource.kind]
    return [body for body in bodies if isinstance(body, ImportSource)]


async def _kept_bytes(store: Store, report: ImportReport) -> bytes:
    """Return the stored original of the imported file."""
    sources = _sources(await store.backend.entries(report.session))
    return b"".join([await store.backend.blob(source.blob) for source in sources])


async def look_around(play: Play) -> None:
    """Print the tree, and the context that a model gets."""
    stage = play.stage
    await _draw(play, TREE_LINES)
    context = await play.session.context()
    path = await play.session.path()
    stage.say()
    stage.say(
        f"the context: {count_of(len(context.messages), 'message')} of a branch of "
        f"{count_of(len(path), 'entry', 'entries')}, about {count_of(context.tokens, 'token')}"
    )
    stage.claim("every tool call in it is answered", holds=is_answered(context))


async def _draw(play: Play, limit: int) -> None:
    stage, session = play.stage, play.session
    await session.info()
    lines = lines_of(await session.tree(), session.leaf, limit=limit)
    stage.show_all(draw(lines, session.id, stage.width - len(INDENT), stage.style))


async def hand_over(play: Play) -> None:
    """Give the session the agent and the model of the demonstration."""
    async with runtime_of(play) as runtime:
        chat = await runtime.resume(play.session.id, "demo")
        await chat.set_model(MODEL)


async def branch_off(play: Play) -> None:
    """Branch at an earlier point, and fork from the same point."""
    stage, session = play.stage, play.session
    await session.info()
    old_leaf = session.leaf
    old_path = await session.path()
    turning = turning_point(old_path)
    preview = preview_of(turning, stage.width - 40)
    stage.say(f"back to {_name(turning, session)}, {preview.who}: {preview.what}")
    await session.branch(turning)
    async with runtime_of(play) as runtime:
        chat = await runtime.resume(session.id)
        await chat.set_model(MODEL)
        reply = await chat.send(ASKS_THE_OTHER_WAY)
    stage.say(f"the model: “{reply.text}”")
    if reply.entry_id is not None:
        await session.label(reply.entry_id, _LABEL)
    stage.say()
    await _draw(play, BRANCH_LINES)
    stage.say()
    new_path = await session.path()
    shared = old_path[: old_path.index(turning) + 1]
    stage.claim(
        f"the new branch shares the first {count_of(len(shared), 'entry', 'entries')}",
        holds=new_path[: len(shared)] == shared and len(new_path) > len(shared),
    )
    kept = await session.path(old_leaf)
    stage.claim("the branch that was left is as it was", holds=kept == old_path)
    await _fork(play, turning)


async def _fork(play: Play, turning: Entry) -> None:
    stage, session = play.stage, play.session
    head = session.head
    copy = await session.fork(at=turning, title="A fork of the demonstration")
    info = await copy.info()
    stage.claim(
        f"the fork {copy.id} has {count_of(info.messages, 'message')} and copied no entry",
        holds=info.entries == 0 and copy.leaf == turning.id,
    )
    await session.info()
    stage.claim("the session it was forked from did not change", holds=session.head == head)


def turning_point(path: list[Entry]) -> Entry:
    """Return the end of a turn near the middle of `path`: an entry followed by a user message."""
    ends = [
        before
        for before, after in pairwise(path)
        if role_of(after) == "user" and role_of(before) not in ("", "tool")
    ]
    return ends[len(ends) // 2] if ends else path[0]


def _name(entry: Entry, session: Session) -> str:
    return f"entry {entry.seq}" if entry.stream == session.id else entry.id


async def find_again(play: Play) -> None:
    """Search for words that occur on the abandoned branch."""
    stage, session = play.stage, play.session
    hits = await play.store.search(f'"{REMEMBERED}"', roles=("user",), sessions=(session.id,))
    left = [hit for hit in hits if not hit.is_on_branch]
    for hit in left[:1]:
        stage.say(f"{hit.entry}, {hit.role}: {hit.snippet}")
    stage.claim(f"“{REMEMBERED}” is found on the branch that was left", holds=bool(left))


async def check_hashes(play: Play) -> None:
    """Verify the store."""
    found = await play.store.verify()
    looked_at = count_of(found.entries, "entry", "entries")
    play.stage.claim(
        f"every hash is right: {looked_at} in {count_of(found.streams, 'log')}", holds=found.is_ok
    )
    for problem in found.problems:
        play.stage.say(f"{problem.stream}/{problem.seq}: {problem.problem}")


def commands_to_try(session: str, address: str) -> list[str]:
    """Return commands to try next; they call perdure in the same way as the user did."""
    program = program_name()
    return [
        f"export PERDURE_STORE={shlex.quote(address)}",
        f"{program} sessions tree {session}",
        f"{program} sessions context {session}",
        f"{program} chat --session {session} -m scripted:echo",
        f"{program} store verify",
    ]


def program_name() -> str:
    """Return the command that calls perdure from the current folder."""
    found = shutil.which("perdure")
    here = Path(sys.executable).with_name("perdure")
    if found is not None and Path(found).resolve() == here.resolve():
        return "perdure"
    if here.exists():
        short = here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here
        return shlex.quote(str(short))
    return f"{shlex.quote(sys.executable)} -m perdure"
