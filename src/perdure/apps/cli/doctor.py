"""``perdure doctor``: check the installation and the store, and give advice on each problem."""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import apsw
import msgspec

from perdure.apps.cli.exits import DONE, FAILED
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.session_rows import waiting_sessions
from perdure.apps.settings.layers import Configuration
from perdure.apps.settings.servers import servers_of
from perdure.apps.store_access import is_missing, store_address
from perdure.apps.terminal.advice import message_of
from perdure.apps.terminal.output import count_of, out_style, size
from perdure.apps.terminal.style import Meaning
from perdure.apps.terminal.text import safe
from perdure.bounds.files import open_named
from perdure.client.agents.providers import provider_states
from perdure.client.keys import has_keyring
from perdure.client.lookup.store_files import database_file
from perdure.errors import PerdureError
from perdure.errors.advice import install_of
from perdure.secrets.mask import masked_value
from perdure.stores.protocol import StoreInfo, Verification
from perdure.stores.sqlite.files.leftovers import unfinished_repair, unfinished_restore
from perdure.stores.sqlite.rekey_copy import unfinished_copy

Status = Literal["ok", "warn", "fail"]

VERIFIED_BYTES = 200_000_000
"""Larger stores are verified only by `perdure store verify`: verifying can take a while."""

LITTLE_SPACE_BYTES = 1_000_000_000
NO_SPACE_BYTES = 50_000_000

_WAL_VERSIONS = b"\x02\x02"
_WAL_OFFSET = 18

_MEANINGS: Mapping[Status, Meaning] = {"ok": "good", "warn": "warning", "fail": "bad"}


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one check. `advice` describes how to fix the problem that the check found."""

    name: str
    status: Status
    detail: str
    advice: str | None = None


async def doctor(*, common: CommonOptions) -> int:
    """Check the set-up and the store.

    Checks the installation, free space, encryption, the permissions, journal and hashes of the
    store (for a large store use `perdure store verify`), and the configured models and MCP servers.
    Prints advice for each problem. Changes nothing.

    Examples:
        perdure doctor
        perdure doctor --json --store sqlite:///agents.db

    Exit codes:
        1  a check failed
    """
    checks = [*_installation(), *await _store(common), *_models()]
    checks += _servers()
    is_ok = all(check.status != "fail" for check in checks)
    checks = [msgspec.convert(masked_value(msgspec.to_builtins(c)), Check) for c in checks]
    common.show({"ok": is_ok, "checks": checks}, _lines(checks))
    return DONE if is_ok else FAILED


def _lines(checks: list[Check]) -> Iterator[str]:
    style = out_style()
    for check in checks:
        status = style.paint(check.status.ljust(4), _MEANINGS[check.status])
        yield f"{status}  {check.name.ljust(11)}  {safe(check.detail)}"
        if check.advice:
            yield f"{' ' * 19}{style.paint(safe(check.advice), 'faint')}"


def _installation() -> Iterator[Check]:
    yield Check("perdure", "ok", version("perdure"))
    yield Check("python", "ok", f"{platform.python_version()} on {platform.system()}, {sys.prefix}")
    yield Check("sqlite", "ok", f"{apsw.sqlite_lib_version()} (through apsw {apsw.apsw_version()})")


# ---------------------------------------------------------------- the location, before it is opened


async def _store(common: CommonOptions) -> list[Check]:
    """Check the store; report if the settings do not determine a store."""
    try:
        return [*_place(common.store), *await _content(common)]
    except PerdureError as error:
        return [Check("store", "fail", message_of(error))]
    except PermissionError as error:
        advice = "check the owner and permissions of file and folder"
        return [Check("store", "fail", f"{error.filename}: {error.strerror}", advice)]


def _place(store: str | None) -> Iterator[Check]:
    """Check the file system of the store.

    This function reads the store's file, so it must run before SQLite locks that file in this
    process.
    """
    address = store_address(store)
    file = database_file(address)
    if file is None:
        yield Check("store", "ok", address)
        return
    if is_missing(address):
        yield Check(
            "store",
            "ok",
            f"{address} does not exist yet",
            "`perdure import` or `perdure chat` creates it",
        )
    else:
        yield Check("store", "ok", address)
        yield _privacy(file)
        yield _journal(file)
        yield from _leftovers(file)
    yield from _folder(_nearest(file.parent))


def _nearest(folder: Path) -> Path:
    """Return `folder`, or its nearest existing parent."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _privacy(file: Path) -> Check:
    mode = stat.S_IMODE(file.stat().st_mode)
    if mode & 0o077:
        detail = f"other users can use the file (mode {mode:03o})"
        return Check("privacy", "warn", detail, f"chmod 600 {file}")
    return Check("privacy", "ok", f"only you can use the file (mode {mode:03o})")


def _journal(file: Path) -> Check:
    try:
        with open_named(file) as opened:
            versions = opened.read(_WAL_OFFSET + 2)[_WAL_OFFSET:]
    except OSError as error:
        reason = f"it cannot be read ({error.strerror})"
        return Check("journal", "fail", reason, "name a store that is a regular file")
    if versions == _WAL_VERSIONS:
        return Check(
            "journal", "ok", "write-ahead log: readers and writers do not block each other"
        )
    return Check("journal", "warn", "no write-ahead log", "the next command that writes sets it")


def _leftovers(file: Path) -> Iterator[Check]:
    """Find the files that interrupted commands left, and the stores that a repair replaced."""
    for name, left, advice in (
        ("rekey", unfinished_copy(file), "run `perdure store rekey` again, or delete the copy"),
        (
            "restore",
            unfinished_restore(file),
            "run `perdure store restore` again, or delete what it left",
        ),
        (
            "repair",
            unfinished_repair(file),
            "run `perdure store repair` again: it removes what it left",
        ),
    ):
        if left.exists():
            detail = f"an interrupted {name} left {left}"
            yield Check(name, "warn", detail, advice)
    for left in sorted(file.parent.glob(f"{file.name}-damaged*")):
        detail = f"a repair has set a damaged store aside: {left}"
        yield Check(
            "damaged",
            "ok",
            detail,
            "report.json in this folder lists the losses; you can delete the folder",
        )


def _folder(folder: Path) -> Iterator[Check]:
    if not os.access(folder, os.W_OK):
        advice = "change its permissions, or name another store with --store or PERDURE_STORE"
        yield Check("folder", "fail", f"{folder} cannot be written", advice)
    free = shutil.disk_usage(folder).free
    status: Status = "fail" if free < NO_SPACE_BYTES else "ok"
    if NO_SPACE_BYTES <= free < LITTLE_SPACE_BYTES:
        status = "warn"
    advice = None if status == "ok" else "free some space: a commit that does not fit fails"
    yield Check("disk", status, f"{size(free)} free", advice)


# ---------------------------------------------------------------- the content


async def _content(common: CommonOptions) -> list[Check]:
    address = store_address(common.store)
    if is_missing(address):
        return []
    try:
        async with common.existing_store() as opened:
            facts = await opened.info()
            is_small = facts.size_bytes <= VERIFIED_BYTES
            found = await opened.verify() if is_small else None
            interrupted = {each.id for each in await opened.recent(None, status="interrupted")}
            waiting = await waiting_sessions(opened) if interrupted else set[str]()
            scheduled, now = await opened.schedule.list(), opened.outside.clock.now_ms()
    except PerdureError as error:
        return [Check("content", "fail", message_of(error))]
    turns = _turns_check(len(interrupted - waiting), len(interrupted & waiting))
    encryption = _encryption(facts, common.store)
    overdue = _overdue(sum(each.due_at <= now for each in scheduled))
    return [_content_check(facts, found), turns, *overdue, _durability(facts), encryption]


def _overdue(messages: int) -> Iterator[Check]:
    if messages:
        detail = f"{count_of(messages, 'scheduled message')} overdue"
        advice = "`perdure schedule list` says what each of them waits for"
        yield Check("schedule", "warn", detail, advice)


def _turns_check(interrupted: int, waiting: int) -> Check:
    if not interrupted and not waiting:
        return Check("turns", "ok", "no turn is interrupted")
    wait = f"{count_of(waiting, 'turn')} waiting for your answer"
    if not interrupted:
        return Check("turns", "ok", wait, "`perdure inbox` lists the questions")
    detail = f"{count_of(interrupted, 'turn')} interrupted" + (f", {wait}" if waiting else "")
    return Check("turns", "warn", detail, "`perdure sessions resume --all` continues them")


def _content_check(facts: StoreInfo, found: Verification | None) -> Check:
    held = (
        f"{count_of(facts.entries, 'entry', 'entries')} in {count_of(facts.streams, 'log')}, "
        f"{size(facts.size_bytes)}"
    )
    if found is None:
        return Check("content", "ok", held, "`perdure store verify` checks all of it")
    if found.is_ok:
        return Check("content", "ok", f"{held}; every hash is right")
    problems = count_of(len(found.problems), "problem")
    return Check("content", "fail", f"{held}; {problems}", "`perdure store verify` lists them")


def _durability(facts: StoreInfo) -> Check:
    if facts.durability == "full":
        return Check("durability", "ok", "full: commits survive power loss")
    return Check(
        "durability", "warn", f"{facts.durability}: a power loss can lose the newest commits"
    )


def _rekey_advice(store: str | None) -> str:
    """Return advice with the command that encrypts the store."""
    named = "" if store is None else f" --store {shlex.quote(store)}"
    if has_keyring():
        return f"`perdure store rekey --generate{named}` encrypts it, with a key in the keyring"
    return (
        f"`perdure store rekey --generate --new-key-file ~/.perdure.key{named}` encrypts it, with "
        "a key in that file: no keyring works here"
    )


def _encryption(facts: StoreInfo, store: str | None) -> Check:
    if facts.is_encrypted:
        return Check("encryption", "ok", f"the store is encrypted with {facts.cipher}")
    advice = "keep it on an encrypted disk: this kind of store is not encrypted itself"
    if facts.backend == "sqlite":
        advice = _rekey_advice(store)
    return Check(
        "encryption",
        "warn",
        "the store is plain: anyone who can read the file can read all sessions",
        advice,
    )


# ---------------------------------------------------------------- models


def _models() -> Iterator[Check]:
    """Check the providers that are set up, and report those whose key or package cannot be used."""
    states = provider_states(os.environ)
    ready = [state.name for state in states if state.status == "configured"]
    yield Check("models", "ok", f"set up: {', '.join(ready)}", "`perdure models` lists them all")
    unusable: dict[str, list[str]] = {}  # what to do -> the providers that share the key
    for state in states:
        if state.status == "unusable key":
            unusable.setdefault(state.remedy, []).append(state.name)
    for remedy, (first, *others) in unusable.items():
        also = f" (also for {', '.join(others)})" if others else ""
        yield Check("models", "fail", f"{first}: {remedy}{also}")
    for state in states:
        if state.status == "missing package" and state.key is not None:
            detail = f"{state.name} has a key ({state.key}), and its package is not installed"
            yield Check("models", "fail", detail, state.remedy)


# ---------------------------------------------------------------- MCP servers


def _servers() -> Iterator[Check]:
    """Check whether the programs of the MCP servers in the settings exist.

    No server is started or contacted.
    """
    try:
        configuration = Configuration(Path(), os.environ, is_lenient=True)
        servers = servers_of(configuration)
    except PerdureError as error:
        yield Check("settings", "fail", message_of(error), "`perdure config path` names the files")
        return
    for faulty in configuration.faulty_servers:
        detail = f"{faulty.name} cannot be used: {'; '.join(faulty.faults)}"
        yield Check("mcp", "fail", detail, f"correct the server in {faulty.file}")
    if not servers:
        return
    if importlib.util.find_spec("mcp") is None:
        detail = "there are MCP servers, and the package for them is not installed"
        yield Check("mcp", "fail", detail, install_of("mcp"))
    names = ", ".join(server.name for server in servers)
    yield Check("mcp", "ok", f"set up: {names}", "`perdure mcp test NAME` connects one")
    for server in servers:
        if server.command is not None and shutil.which(server.command) is None:
            detail = f"the program of {server.name} is not on this machine: {server.command}"
            yield Check("mcp", "fail", detail, "install it, or take the server out of the settings")
