"""An operating system keyring for the real package ``keyring``, in memory only."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import keyring
from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError


class MemoryKeyring(KeyringBackend):
    """A keyring in memory: passwords by service and user."""

    priority = 1  # pyright: ignore[reportAssignmentType] - the package reads it from the class

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        super().__init__()

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if self.kept.pop((service, username), None) is None:
            raise PasswordDeleteError("no such password")


@contextmanager
def memory_keyring() -> Generator[MemoryKeyring]:
    """Use a keyring in memory for this process, for the duration of the block."""
    before = keyring.get_keyring()
    made = MemoryKeyring()
    keyring.set_keyring(made)
    try:
        yield made
    finally:
        keyring.set_keyring(before)
