"""Earlier input of the user: sent messages and unsent text.

Sent messages are read from the log, so they are not stored a second time, and an encrypted store
keeps them encrypted. Unsent text is kept in a file of the user's state folder until it is sent or
deleted; if the store is encrypted, unsent text is not stored.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from perdure.apps.maintenance.whole_store import is_encrypted
from perdure.bounds.files import read_named
from perdure.bounds.user_folders import user_folder
from perdure.client.lookup.store_files import database_file, own_folders
from perdure.client.processes import exists
from perdure.client.store import Store
from perdure.errors import PerdureError
from perdure.session.messages import MESSAGE, TextPart

_SESSIONS = 10
_LOOKED_AT = 200
"""Number of newest messages of a session that are searched for user messages."""


_INPUTS = 100


async def earlier_inputs(store: Store, folder: Path) -> list[str]:
    """Return the newest texts that the user sent from `folder`, newest first, without repeats."""
    found: dict[str, None] = {}
    for info in await store.recent(_SESSIONS, cwd=folder):
        session = await store.open(info.id)
        entries = session.entries(kind=MESSAGE, newest_first=True, limit=_LOOKED_AT)
        async for entry in entries:
            message = entry.message if len(found) < _INPUTS else None
            if message is not None and message.role == "user":
                texts = [part.text for part in message.parts if isinstance(part, TextPart)]
                if texts and texts[0].strip():
                    found.setdefault(texts[0])
    return list(found)


_DRAFT_DAYS = 30
"""Unsent texts older than this many days are removed."""


class Drafts:
    """The unsent texts of sessions in `place`, which names a store and a namespace.

    Each text is in its own file in `folder`, which only the user can read. The name of the file is
    a hash of `place` and the session, followed by the process id `process`. Unsent texts of
    processes that have ended are offered in the next chat of the session. If a file cannot be
    written or read, no error is raised, and the text is lost.
    """

    def __init__(self, folder: Path, place: str, process: int) -> None:
        self._folder = folder
        self._place = place
        self._process = process

    def take(self, session: str, known: str = "") -> str:
        """Remove and return the unsent texts of `session` from processes that have ended.

        The result contains the texts on separate lines, oldest first. A text that is equal to
        `known` is omitted.
        """
        found: list[tuple[float, str]] = []
        with suppress(OSError):
            self._remove_old()
            for file in self._files(session):
                if (text := self._text_in(file)) and text != known:
                    found.append((file.stat().st_mtime, text))
                file.unlink()
        return "\n".join(text for _, text in sorted(found))

    def keep(self, session: str, text: str) -> None:
        """Store `text`, so that it survives a kill of this process.

        An empty `text` deletes the file.
        """
        file = self._folder / f"{self._name(session)}.{self._process}"
        with suppress(OSError):
            if not text.strip():
                file.unlink(missing_ok=True)
                return
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = file.with_suffix(f"{file.suffix}.new")
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
                out.write(text.encode(errors="replace"))
            new.replace(file)

    def _files(self, session: str) -> Iterator[Path]:
        for file in self._folder.glob(f"{self._name(session)}.*"):
            process = file.suffix.removeprefix(".")
            if process.isdecimal() and (int(process) == self._process or not exists(int(process))):
                yield file

    def _text_in(self, file: Path) -> str:
        with suppress(OSError, PerdureError):
            return read_named(file).decode(errors="replace")
        return ""

    def _remove_old(self) -> None:
        oldest = time.time() - _DRAFT_DAYS * 86_400
        for file in self._folder.iterdir():
            if file.stat().st_mtime < oldest:
                file.unlink(missing_ok=True)

    def _name(self, session: str) -> str:
        return hashlib.blake2b(f"{self._place}\0{session}".encode(), digest_size=16).hexdigest()


async def drafts_of(store: Store, environment: Mapping[str, str]) -> Drafts | None:
    """Return the drafts of `store`; None if the store is in memory or encrypted."""
    backend = store.backend
    file = database_file(backend.address)
    place = backend.address if file is None else str(file.absolute())
    if file is None and not own_folders(place) and not place.startswith("postgres"):
        return None
    if file is not None and await is_encrypted(backend.address):
        return None
    return Drafts(
        state_folder(environment) / "drafts", f"{place}\0{backend.namespace}", os.getpid()
    )


def state_folder(environment: Mapping[str, str]) -> Path:
    """Return the user's state folder for perdure; the folder might not exist."""
    return user_folder("XDG_STATE_HOME", ".local/state", environment)
