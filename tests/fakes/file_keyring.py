"""A keyring that stores passwords in the JSON file $PERDURE_TEST_KEYRING, for test commands.

A command uses this keyring if PYTHON_KEYRING_BACKEND=tests.fakes.file_keyring.FileKeyring is set.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordDeleteError


class FileKeyring(KeyringBackend):
    """A keyring in a JSON file: passwords by service and user."""

    priority = 1  # pyright: ignore[reportAssignmentType] - the package reads it from the class

    @property
    def _file(self) -> Path:
        return Path(os.environ["PERDURE_TEST_KEYRING"])

    def _kept(self) -> dict[str, str]:
        return json.loads(self._file.read_text()) if self._file.exists() else {}

    def get_password(self, service: str, username: str) -> str | None:
        return self._kept().get(f"{service} {username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._file.write_text(json.dumps({**self._kept(), f"{service} {username}": password}))

    def delete_password(self, service: str, username: str) -> None:
        kept = self._kept()
        if kept.pop(f"{service} {username}", None) is None:
            raise PasswordDeleteError("no such password")
        self._file.write_text(json.dumps(kept))


class LockedKeyring(FileKeyring):
    """A keyring that its owner does not unlock."""

    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked("locked")

    def delete_password(self, service: str, username: str) -> None:
        raise KeyringLocked("locked")
