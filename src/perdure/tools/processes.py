"""Run a program in its own process group, with a minimal environment and limits on time and output.

The whole process group is killed when the wait ends, for any reason. A process that left its group
on purpose (``setsid``) is not killed, because perdure does not isolate programs. perdure only
restricts which programs a model can start.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from perdure.errors import ToolError, ToolUnavailable

MAX_STREAM_BYTES = 1024 * 1024
TERMINATE_S = 1.0
DRAIN_S = 1.0

_INHERITED = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SYSTEMROOT")
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


class ProcessResult(msgspec.Struct, frozen=True):
    """The result of a program that ended. If the program timed out and was killed, `code` is None.

    Units: `left_out` counts the bytes of both output streams that were read and discarded.
    """

    code: int | None
    stdout: bytes
    stderr: bytes
    left_out: int = 0


def small_environment(inherited: Mapping[str, str], working_dir: Path) -> dict[str, str]:
    """Return the few environment variables that programs need.

    The variables that name the user, locale, time zone and folders come from `inherited`. All other
    variables are dropped, because they could change what a program does. Relative directories in
    PATH, and directories in `working_dir`, are dropped, because the model might have written their
    files.
    """
    kept = {name: inherited[name] for name in _INHERITED if name in inherited}
    folders = inherited.get("PATH", _DEFAULT_PATH).split(os.pathsep)
    inside = working_dir.resolve()
    safe = [f for f in folders if os.path.isabs(f) and not Path(f).resolve().is_relative_to(inside)]  # noqa: PTH117 - of text
    return {**kept, "PATH": os.pathsep.join(safe), "TERM": "dumb"}


def program_of(name: str, path: str, tool: str) -> str:
    """Find the program `name` on `path`; a name that contains a path is returned unchanged.

    Raises: ToolUnavailable if there is no such program.
    """
    if "/" in name:
        return name
    found = shutil.which(name, path=path)
    if found is None:
        raise ToolUnavailable(tool, "no such program on this machine")
    return found


async def run_program(
    argv: Sequence[str],
    *,
    tool: str,
    working_dir: Path,
    environment: Mapping[str, str],
    timeout_s: float,
) -> ProcessResult:
    """Run `argv` in `working_dir` without input, and wait until the program ends.

    Raises: ToolUnavailable if the program does not exist. Raises ToolError if starting it fails.
    Raises CancelledError if the call is cancelled, after killing the program.
    """
    program = program_of(argv[0], environment["PATH"], tool)
    loop = asyncio.get_running_loop()
    starting = asyncio.ensure_future(
        loop.subprocess_exec(
            _Watched,
            program,
            *argv[1:],
            cwd=working_dir,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    )
    try:
        transport, watched = await _begun(starting)
    except FileNotFoundError:
        raise ToolUnavailable(tool, "no such program on this machine") from None
    except (OSError, ValueError):
        raise ToolError(tool, "the program cannot be started") from None
    try:
        is_late = not await watched.has_ended(transport.get_pid(), timeout_s)
    finally:
        await _end(transport, watched)
    out, error = watched.outputs
    code = None if is_late else transport.get_returncode()
    return ProcessResult(code, bytes(out.data), bytes(error.data), out.left_out + error.left_out)


async def _begun(starting: asyncio.Future[_Program]) -> _Program:
    """Wait until the program `starting` has started, and return it.

    If the call is cancelled during the start, the program is killed as soon as it runs.
    """
    try:
        await asyncio.wait((starting,))
    except asyncio.CancelledError:
        await asyncio.wait((starting,))
        if not starting.cancelled() and starting.exception() is None:
            await _end(*starting.result())
        raise
    return starting.result()


async def _end(transport: asyncio.SubprocessTransport, watched: _Watched) -> None:
    """Kill the remaining processes of the program's group, and close its pipes."""
    _signal(transport.get_pid(), signal.SIGKILL)
    try:
        # A process that left the group may hold the pipes: its output is not waited for.
        await asyncio.wait((watched.closed,), timeout=DRAIN_S)
    finally:
        transport.close()
    await asyncio.wait((watched.closed,), timeout=DRAIN_S)


class _Kept:
    """Keeps the beginning of an output stream; the bytes after it are only counted."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.left_out = 0

    def take(self, piece: bytes) -> None:
        room = MAX_STREAM_BYTES - len(self.data)
        self.data += piece[:room]
        self.left_out += max(0, len(piece) - room)


class _Watched(asyncio.SubprocessProtocol):
    """Watches a running program, and collects its output."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.outputs = (_Kept(), _Kept())

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.outputs[fd - 1].take(data)

    def process_exited(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    async def has_ended(self, pid: int, timeout_s: float) -> bool:
        """Wait for the process; return True if it ends in time.

        If the process does not end in time, terminate it.
        """
        await asyncio.wait((self.exited,), timeout=timeout_s)
        if self.exited.done():
            return True
        _signal(pid, signal.SIGTERM)
        await asyncio.wait((self.exited,), timeout=TERMINATE_S)
        return False


_Program: TypeAlias = tuple[asyncio.SubprocessTransport, _Watched]


def _signal(group: int, number: signal.Signals) -> None:
    """Send the signal `number` to the process group `group`, if the group still exists."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def exit_report(ended: ProcessResult, timeout_s: float) -> str:
    """Return the text that tells a model how a program ended."""
    head = f"exit code {ended.code}"
    if ended.code is None:
        head = f"killed: no end within {timeout_s:g} s"
    elif ended.code < 0:
        head = f"killed by signal {-ended.code}"
    parts = [f"[{head}]"]
    if ended.stdout:
        parts.append(ended.stdout.decode(errors="replace").rstrip("\n"))
    if ended.stderr:
        parts += ["[stderr]", ended.stderr.decode(errors="replace").rstrip("\n")]
    if ended.left_out:
        parts.append(f"[{ended.left_out} more bytes were not kept]")
    return "\n".join(parts)
