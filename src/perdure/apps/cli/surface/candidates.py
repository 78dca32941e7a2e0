"""Finds completion candidates in a store and on this machine.

Completion runs at each key press, so it only reads: it creates no store and asks no question.
Completion imports only the modules that the typed word needs: completing a session id imports
neither typer nor a model client.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from perdure.apps.cli.surface.completion import Candidate, Completion
from perdure.apps.settings.lookup import agent_folders, setting
from perdure.apps.settings.store_address import NAMESPACE, configured_address
from perdure.apps.terminal.output import local_day
from perdure.client.lookup.store_files import database_file
from perdure.stores.access.lazy_modules import Later

if TYPE_CHECKING:
    import asyncio

    from perdure.apps import store_access
    from perdure.client.agents.providers import ProviderState
    from perdure.client.session import Session
    from perdure.client.store import Store
    from perdure.session.info import SessionInfo
else:
    asyncio = Later("asyncio")
    store_access = Later("perdure.apps.store_access")

MOST_SESSIONS = 100
MOST_ENTRIES = 500
_PREVIEW_CELLS = 60
_KEYS = frozenset({"PERDURE_KEY", "PERDURE_KEY_FILE"})
"""Variables of a key: opening the store reports a key that does not fit the file."""

Result = TypeVar("Result")


class StoreLookup:
    """`Lookup` in the store and namespace that `words`, the text typed so far, name."""

    def __init__(self, words: Sequence[str]) -> None:
        self._store = _option_value(words, "--store")
        self._namespace = (
            _option_value(words, "--namespace")
            or os.environ.get("PERDURE_NAMESPACE")
            or setting("store.namespace")
            or NAMESPACE
        )

    def sessions(self, typed: str) -> Completion:
        """Return sessions whose id begins with `typed` or whose title contains it, or files.

        Newest first.
        """
        if typed.startswith((".", "~")) or "/" in typed:
            return Completion(mode="files")

        async def look(store: Store) -> list[SessionInfo]:
            return await store.recent(MOST_SESSIONS, scope="all", query=typed or None)

        found = self._quick_list(typed)
        if found is None:
            found = self._ask(look)
        by_id = tuple(_session(info) for info in found if info.id.startswith(typed))
        if by_id:
            return Completion(by_id, is_ordered=True)
        by_title = tuple(_session(info) for info in found)
        if not by_title:
            return Completion(mode="files")
        return Completion(by_title, is_replacing=True, is_ordered=True)

    def entries(self, session: str) -> list[Candidate]:
        """Return the entries of `session`, newest first."""
        options: Any = importlib.import_module("perdure.apps.cli.store_options")
        preview_of: Any = importlib.import_module("perdure.apps.terminal.previews").preview_of

        async def look(store: Store) -> list[Candidate]:
            handle: Session = await options.opened_session(store, session)
            tree = await store.backend.tree(handle.id)
            previews = [(each, preview_of(each, _PREVIEW_CELLS)) for each in tree[-MOST_ENTRIES:]]
            return [
                Candidate(
                    str(entry.seq) if entry.stream == handle.id else entry.id,
                    f"{preview.who}: {preview.what}",
                )
                for entry, preview in reversed(previews)
            ]

        return self._ask(look)

    def questions(self) -> list[Candidate]:
        """Return the open questions."""

        async def look(store: Store) -> list[Candidate]:
            return [Candidate(each.id, each.question.text) for each in await store.questions()]

        return self._ask(look)

    def grants(self, session: str) -> list[Candidate]:
        """Return the ids of the grants in `session`, with their texts."""
        options: Any = importlib.import_module("perdure.apps.cli.store_options")
        usage: Any = importlib.import_module("perdure.client.agents.session_usage")
        id_of: Any = importlib.import_module("perdure.apps.chat.grants").id_of

        async def look(store: Store) -> list[Candidate]:
            known = await usage.standing_of(store, await options.named_session(store, session))
            return [Candidate(id_of(each), each) for each in known.grants]

        return self._ask(look)

    def choices(self, question: str) -> list[Candidate]:
        """Return the choices of `question`."""

        async def look(store: Store) -> list[Candidate]:
            asked = [each for each in await store.questions() if each.id.startswith(question)]
            choices = dict.fromkeys(choice for each in asked for choice in each.question.choices)
            return [Candidate(choice) for choice in choices]

        return self._ask(look)

    def models(self) -> list[Candidate]:
        """Return the offline model, and the providers that are set up."""
        echo: str = importlib.import_module("perdure.models.catalogue").ECHO
        providers: Any = importlib.import_module("perdure.client.agents.providers")
        states: Sequence[ProviderState] = providers.provider_states(os.environ)
        offline = echo.partition(":")[0]
        ready = [state for state in states if state.status in ("configured", "default address")]
        return [
            Candidate(echo, "offline"),
            *(Candidate(f"{each.name}:", each.status) for each in ready if each.name != offline),
        ]

    def programs(self) -> list[Candidate]:
        """Return the programs whose sessions can be imported."""
        formats: Any = importlib.import_module("perdure.interop.reports").Format
        return [Candidate(name) for name in get_args(formats)]

    def agents(self) -> list[Candidate]:
        """Return the ids of agents from the agent files of the project and of the user."""
        suffix: str = importlib.import_module("perdure.client.agents.files.reader").SUFFIX
        return [
            Candidate(file.name.removesuffix(suffix), place)
            for place, folder in agent_folders(Path(), os.environ).items()
            for file in sorted(folder.glob(f"*{suffix}"))
        ]

    def _quick_list(self, typed: str) -> list[SessionInfo] | None:
        """Return the sessions without opening the store; None if they cannot be read this way."""
        file = database_file(configured_address(self._store))
        if file is None or not _KEYS.isdisjoint(os.environ):
            return None
        read: Any = importlib.import_module("perdure.stores.sqlite.log.quick_list").quick_list
        found: list[SessionInfo] | None = read(
            file, self._namespace, limit=MOST_SESSIONS, query=typed or None
        )
        return found

    def _ask(self, look: Callable[[Store], Awaitable[Result]]) -> Result:
        async def ask_store() -> Result:
            async with store_access.existing_store(self._store, self._namespace) as store:
                return await look(store)

        return asyncio.run(ask_store())


def _session(info: SessionInfo) -> Candidate:
    return Candidate(info.id, f"{local_day(info.updated_at)} {info.name}".strip())


def _option_value(words: Sequence[str], option: str) -> str | None:
    """Return the last value of `option` in `words`."""
    value = None
    for number, word in enumerate(words):
        if word == option and number + 1 < len(words):
            value = words[number + 1]
        elif word.startswith(f"{option}="):
            value = word.partition("=")[2]
    return value
