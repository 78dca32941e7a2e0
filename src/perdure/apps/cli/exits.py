"""Exit codes of commands, derived from an error's stable ``code``.

An error code that `EXITS` does not contain gives exit code 1, because the work failed. Errors that
only the command line raises (an existing file, a missing path) are defined here.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import ClassVar

from perdure.errors import EntryNotFound, FactNotFound, NotImported, PerdureError, SessionNotFound

DONE = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
CONFLICT = 4
INTERRUPTED = 130


class UsageMistake(PerdureError):
    """The command line is invalid."""

    code: ClassVar[str] = "usage"


class PathNotFound(PerdureError):
    """A file or folder that the user named does not exist."""

    code: ClassVar[str] = "path_not_found"

    def __init__(self, path: str) -> None:
        super().__init__(f"no such file or folder: {path}")
        self.path = path


class StoreFolderNotFound(PathNotFound):
    """The folder in which a new store would be created does not exist."""

    def __init__(self, folder: str, near: str | None = None) -> None:
        super().__init__(folder)
        advice = "create it, or correct the address" if near is None else f"did you mean {near}?"
        self.args = (f"the folder {folder} does not exist: {advice}",)


class PathExists(PerdureError):
    """A file exists, and replacing it was not requested."""

    code: ClassVar[str] = "path_exists"

    def __init__(
        self, path: str, remedy: str = "choose another name, or add --force to replace it"
    ) -> None:
        super().__init__(f"{path} exists already; {remedy}")
        self.path = path


class GrantNotFound(PerdureError):
    """The session has no grant with this id or text."""

    code: ClassVar[str] = "grant_not_found"

    def __init__(self, grant: str) -> None:
        super().__init__(f"no grant {grant!r}; `perdure grants list` lists the grants")
        self.grant = grant


class MessageNotFound(PerdureError):
    """No scheduled message has this id."""

    code: ClassVar[str] = "message_not_found"

    def __init__(self, reason: str, id: str) -> None:
        super().__init__(reason)
        self.id = id


class StoreNotFound(PerdureError):
    """The store that a command needs does not exist."""

    code: ClassVar[str] = "store_not_found"

    def __init__(self, store: str, near: str | None = None) -> None:
        advice = " yet; `perdure import` or `perdure chat` makes it"
        if near is not None:
            advice = f"; did you mean {near}?"
        super().__init__(f"there is no store {store}{advice}")
        self.store = store
        self.near = near


class ImportNeeded(NotImported):
    """A command got a session file instead of a session id, but the store has no import of it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.args = (
            f"{path} is not in this store yet; `perdure import {shlex.quote(path)}` adds it",
        )


class NothingToImport(PerdureError):
    """An import found no session file and no flow."""

    code: ClassVar[str] = "nothing_to_import"

    def __init__(self, paths: Iterable[object], sought: str, hint: str = "") -> None:
        places = ", ".join(str(path) for path in paths)
        told = f"nothing to import: no {sought} in {places}"
        super().__init__(f"{told}; {hint}" if hint else told)


class WholeIdNeeded(SessionNotFound):
    """A command that needs a whole id got a prefix of an id, or a file."""

    def __init__(self, typed: str, candidates: tuple[str, ...]) -> None:
        super().__init__(typed)
        shown = ", ".join(candidates[:5]) + (" …" if len(candidates) > 5 else "")
        self.args = (f"erasing needs a whole session id; {typed!r} only matches {shown}",)
        self.candidates = candidates


class TitleGiven(SessionNotFound):
    """A command got a part of a title instead of an id. Shape: `candidates` maps ids to titles."""

    def __init__(self, typed: str, candidates: Mapping[str, str]) -> None:
        super().__init__(typed)
        shown = ", ".join(f"{id} ({title})" for id, title in candidates.items())
        advice = "use the id of a session with this title"
        self.args = (f"no session has the id {typed!r}; {advice}: {shown}",)
        self.candidates = tuple(candidates)


class InOtherNamespace(SessionNotFound):
    """The session that a command names is in another namespace of the store."""

    def __init__(self, typed: str, here: str, there: str) -> None:
        super().__init__(typed)
        advice = f"it is in the namespace {there}: add `--namespace {there}`"
        self.args = (f"no session {typed!r} in the namespace {here}; {advice}",)
        self.namespace = there


class WholeFactIdNeeded(FactNotFound):
    """A command that erases a fact got a part of an id."""

    def __init__(self, typed: str, candidates: tuple[str, ...]) -> None:
        super().__init__(typed)
        shown = ", ".join(candidates[:5]) + (" …" if len(candidates) > 5 else "")
        self.args = (f"forgetting needs the whole id of a fact; {typed!r} only matches {shown}",)


class EpisodeNotFound(EntryNotFound):
    """No episode has this id."""

    def __init__(self, episode: str) -> None:
        super().__init__(episode, None)
        advice = "`perdure memory episodes --all` lists the episodes"
        self.args = (f"no episode {episode!r} here; {advice}",)


class NoTerminal(PerdureError):
    """An interactive choice needs a terminal, and there is none."""

    code: ClassVar[str] = "no_terminal"

    def __init__(self) -> None:
        super().__init__(
            "picking a session needs a terminal; use `perdure sessions list` or"
            " `perdure sessions search`"
        )


class NothingToPick(PerdureError):
    """There is no session to choose from."""

    code: ClassVar[str] = "nothing_to_pick"

    def __init__(self) -> None:
        super().__init__(
            "there are no sessions here yet: `perdure import FILE` or `perdure chat` makes one"
        )


class NeedsAnswer(PerdureError):
    """A turn waits for a person's answer, and this process cannot ask a person."""

    code: ClassVar[str] = "needs_answer"

    def __init__(
        self, question: str, choices: tuple[str, ...], session: str, text: str = ""
    ) -> None:
        said = text.strip().rstrip(".")
        super().__init__(
            f"the turn waits for you{f' ({said})' if said else ''}: `perdure inbox show {question}`"
            f" prints all of it; `perdure inbox answer {question} {'|'.join(choices)}`, then "
            f"`perdure chat --session {session}`"
        )
        self.text = text
        self.question = question
        self.choices = choices
        self.session = session


EXITS: dict[str, int] = {
    "usage": USAGE,
    "config_error": USAGE,
    "model_not_here": USAGE,
    "model_missing": USAGE,
    "format_error": USAGE,
    "unknown_format": USAGE,
    "ambiguous_id": USAGE,
    "invalid_entry": USAGE,
    "invalid_parent": USAGE,
    "invalid_query": USAGE,
    "invalid_workflow": USAGE,
    "invalid_agent_file": USAGE,
    "invalid_settings": USAGE,
    "hook_blocked": FAILED,
    "wrong_argument": USAGE,
    "not_a_store": USAGE,
    "key_missing": USAGE,
    "secret_missing": USAGE,
    "secret_pasted": USAGE,
    "key_wrong": USAGE,
    "store_not_encrypted": USAGE,
    "no_terminal": USAGE,
    "grant_not_found": NOT_FOUND,
    "message_not_found": NOT_FOUND,
    "mcp_server_not_found": NOT_FOUND,
    "scenario_not_found": NOT_FOUND,
    "token_not_found": NOT_FOUND,
    "nothing_to_pick": NOT_FOUND,
    "nothing_to_import": NOT_FOUND,
    "agent_not_found": NOT_FOUND,
    "path_not_found": NOT_FOUND,
    "not_imported": NOT_FOUND,
    "store_not_found": NOT_FOUND,
    "question_not_found": NOT_FOUND,
    "entry_not_found": NOT_FOUND,
    "session_not_found": NOT_FOUND,
    "erased": NOT_FOUND,
    "path_exists": CONFLICT,
    "session_exists": CONFLICT,
    "session_has_forks": CONFLICT,
    "quota_exceeded": CONFLICT,
    "head_conflict": CONFLICT,
    "leaf_conflict": CONFLICT,
    "lease_held": CONFLICT,
    "lease_lost": CONFLICT,
    "turn_open": CONFLICT,
    "store_in_use": CONFLICT,
    "store_locked": CONFLICT,
    "store_exists": CONFLICT,
    "copy_conflict": CONFLICT,
    "idempotency_mismatch": CONFLICT,
    "already_answered": CONFLICT,
    "question_closed": CONFLICT,
    "flow_refusal": CONFLICT,
}
"""Stable ``code`` of an error -> exit code of the command."""


def exit_code_of(error: PerdureError) -> int:
    """Return the exit code of a command that failed with `error`."""
    return EXITS.get(error.code, FAILED)
