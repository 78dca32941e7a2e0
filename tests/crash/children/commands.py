"""Serve ``perdure`` commands: standard input has one request per line, the output one result.

See ``tests.fakes.mortal_commands``. This process opens no store and starts no thread, so that its
forks behave like newly started processes.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import threading
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import BinaryIO, NoReturn

import msgspec

sys.path.insert(0, str(Path(__file__).parents[3]))

from perdure.apps.cli.main import main
from perdure.apps.cli.program import run
from tests.fakes.deaths import ForksImports
from tests.fakes.mortal_commands import Asked, Ended, environment, make_mortal

WORKFLOW = Path(__file__).parents[3] / "examples" / "flows" / "single-owner" / "workflow.yaml"


def serve() -> None:
    """Serve until standard input ends."""
    with redirect_stdout(StringIO()):
        run(["flow", "validate", str(WORKFLOW)])  # loads what reads a command line
    imports = ForksImports()
    with os.fdopen(os.dup(1), "wb", buffering=0) as results:
        for line in sys.stdin.buffer:
            assert threading.active_count() == 1
            gc.freeze()
            asked = msgspec.json.decode(line, type=Asked)
            results.write(msgspec.json.encode(_ended(asked, imports)) + b"\n")


def _ended(asked: Asked, imports: ForksImports) -> Ended:
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        tempfile.TemporaryFile() as told,
    ):
        pid = os.fork()
        if pid == 0:
            imports.tell()
            _become(asked, out, err, told)
        _, status = os.waitpid(pid, 0)
        imports.load()
        texts = [_content(file).decode() for file in (out, err, told)]
        code = os.waitstatus_to_exitcode(status)
        return Ended(code, texts[0], texts[1], texts[2].count("c"), texts[2].count("w"))


def _become(asked: Asked, out: BinaryIO, err: BinaryIO, told: BinaryIO) -> NoReturn:
    code = 70
    try:
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        os.environ.clear()
        os.environ.update(environment(asked.folder))
        os.chdir(asked.folder)
        make_mortal(asked.kill, told.fileno())
        code = main(asked.words)
    finally:
        os._exit(code)


def _content(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read()


serve()
