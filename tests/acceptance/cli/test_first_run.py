"""The first run at a terminal: perdure offers to encrypt the default store."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from perdure.apps.cli.exits import INTERRUPTED
from tests.acceptance.cli.conftest import PATIENCE_S, PERDURE, SAMPLE, SAMPLE_ID, World
from tests.acceptance.cli.test_upkeep import NO_KEYRING, with_keyring
from tests.fakes.forked_commands import command_at_terminal
from tests.fakes.samples import sampled


@dataclass(frozen=True)
class Newcomer:
    """A user whose home folder contains nothing of perdure."""

    world: World

    @property
    def environment(self) -> dict[str, str]:
        environment = dict(self.world.environment)
        del environment["PERDURE_STORE"]
        return environment

    @property
    def file(self) -> Path:
        return self.world.folder / ".local" / "share" / "perdure" / "perdure.db"

    def at_terminal(self, *words: str, answer: str = "") -> str:
        """Return the terminal output of ``perdure`` after `answer` is typed."""
        mine, its = pty.openpty()
        try:
            os.write(mine, answer.encode())
            folder = self.world.folder
            with command_at_terminal(words, self.environment, folder, its, (0, 2)) as process:
                done = process.ended()
            assert done.code == 0
            os.write(its, b"\0")  # the end: the kernel passes on in pieces what was written
            shown = b""
            while b"\0" not in shown:
                shown += os.read(mine, 10_000)
            return shown.decode() + done.out.decode()
        finally:
            os.close(mine)
            os.close(its)


def is_plain(file: Path) -> bool:
    return file.read_bytes().startswith(b"SQLite format 3\0")


@sampled(
    ("answer", "is_encrypted"),
    [("y\n", True), ("\n", True), ("n\n", False)],
    kind=lambda case: case[1],
    each=1,
)
def test_new_user_is_asked_about_encryption_only_once(
    world: World, answer: str, is_encrypted: bool
) -> None:
    newcomer = Newcomer(with_keyring(world))

    told = newcomer.at_terminal("import", str(SAMPLE), answer=answer)

    assert "Encrypt the store" in told
    assert is_plain(newcomer.file) != is_encrypted
    again = newcomer.at_terminal("sessions", "list")
    assert "Encrypt the store" not in again
    assert SAMPLE_ID[:8] in again


def test_one_ctrl_c_ends_the_encryption_question(world: World) -> None:
    newcomer = Newcomer(with_keyring(world))
    mine, its = pty.openpty()
    command = [PERDURE, "import", str(SAMPLE)]
    try:
        with subprocess.Popen(
            command, stdin=its, stderr=its, stdout=its, env=newcomer.environment
        ) as asking:
            shown = b""
            while b"[Y/n]" not in shown:
                shown += os.read(mine, 10_000)
            time.sleep(0.2)  # it is written before it is waited for
            asking.send_signal(signal.SIGINT)
            try:
                assert asking.wait(PATIENCE_S) == INTERRUPTED
            finally:
                asking.kill()
    finally:
        os.close(mine)
        os.close(its)
    assert not newcomer.file.exists()


def test_store_encryption_is_not_offered_without_a_keyring(world: World) -> None:
    newcomer = Newcomer(World(world.folder, NO_KEYRING))
    assert "Encrypt the store" not in newcomer.at_terminal("import", str(SAMPLE))
    assert is_plain(newcomer.file)


def test_non_interactive_program_is_never_asked_about_encryption(world: World) -> None:
    newcomer = Newcomer(with_keyring(world))
    command = [PERDURE, "import", str(SAMPLE)]
    run = subprocess.run(
        command, capture_output=True, env=newcomer.environment, check=True, input=b"", timeout=60
    )
    assert b"Encrypt" not in run.stdout + run.stderr
    assert is_plain(newcomer.file)


def test_store_named_with_an_option_causes_no_encryption_question(world: World) -> None:
    newcomer = Newcomer(with_keyring(world))
    named = f"sqlite:///{world.folder / 'named.db'}"
    assert "Encrypt" not in newcomer.at_terminal("import", str(SAMPLE), "--store", named)
    assert is_plain(world.folder / "named.db")
