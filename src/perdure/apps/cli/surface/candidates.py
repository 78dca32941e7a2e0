"""Finds completion candidates in a store and on this machine.

Completion runs at each key press, so it only reads: it creates no store and asks no question.
Completion imports only the modules that the typed word needs: completing a session id imports
neither typer nor a model client.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
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
    from perdure.client import clock, trust
    from perdure.client.agents.providers import ProviderState
    from perdure.client.conversation import authority
    from perdure.client.reads import OpenQuestion
    from perdure.client.store import Store
    from perdure.session import notes
    from perdure.session.ids import StreamId
    from perdure.session.info import SessionInfo
    from perdure.stores import protocol
    from perdure.stores.protocol import LogReader
    from perdure.stores.sqlite import quick_reads
    from perdure.stores.sqlite.quick_reads import QuickReads
else:
    asyncio = Later("asyncio")
    store_access = Later("perdure.apps.store_access")
    clock = Later("perdure.client.clock")
    trust = Later("perdure.client.trust")
    authority = Later("perdure.client.conversation.authority")
    notes = Later("perdure.session.notes")
    protocol = Later("perdure.stores.protocol")
    quick_reads = Later("perdure.stores.sqlite.quick_reads")

MOST_SESSIONS = 100
MOST_ENTRIES = 500
_PREVIEW_CELLS = 60
_KEYS = frozenset({"PERDURE_KEY", "PERDURE_KEY_FILE"})
"""Environment variables of a key; if one is set, the store is opened, to report a wrong key."""

Result = TypeVar("Result")


class StoreLookup:
    """A `Lookup` in the store and namespace that are named in `words`, the words typed so far."""

    def __init__(self, words: Sequence[str]) -> None:
        self._store = _option_value(words, "--store")
        self._namespace = (
            _option_value(words, "--namespace")
            or os.environ.get("PERDURE_NAMESPACE")
            or setting("store.namespace")
            or NAMESPACE
        )

    def sessions(self, typed: str) -> Completion:
        """Return sessions whose id begins with `typed`, or else whose title or id contains it.

        The newest session comes first. If no session matches, file names are completed.
        """
        if typed.startswith((".", "~")) or "/" in typed:
            return Completion(mode="files")

        async def look(store: Store) -> list[SessionInfo]:
            return await store.recent(MOST_SESSIONS, scope="all", query=typed or None)

        async def look_quickly(log: QuickReads) -> list[SessionInfo]:
            return await log.sessions(limit=MOST_SESSIONS, scope="all", query=typed or None)

        found = self._ask(look, look_quickly)
        by_id = tuple(_session(info) for info in found if info.id.startswith(typed))
        if by_id:
            return Completion(by_id, is_ordered=True)
        by_title = tuple(_session(info) for info in found)
        if not by_title:
            return Completion(mode="files")
        return Completion(by_title, is_replacing=True, is_ordered=True)

    def entries(self, session: str) -> list[Candidate]:
        """Return the entries of `session`, newest first."""

        async def look(store: Store) -> list[Candidate]:
            options: Any = importlib.import_module("perdure.apps.cli.store_options")
            return await _newest(store.backend, await options.named_session(store, session))

        async def look_quickly(log: QuickReads) -> list[Candidate]:
            return await _newest(log, await log.find(session))

        return self._ask(look, look_quickly)

    def questions(self) -> list[Candidate]:
        """Return the open questions."""
        return [Candidate(each.id, each.question.text) for each in self._questions()]

    def grants(self, session: str) -> list[Candidate]:
        """Return the ids of the grants in `session`, with their texts."""

        async def look(store: Store) -> list[Candidate]:
            options: Any = importlib.import_module("perdure.apps.cli.store_options")
            return await _grants(store.backend, await options.named_session(store, session))

        async def look_quickly(log: QuickReads) -> list[Candidate]:
            log.marks = trust.own_marks(is_trusted=False, makes_key=False)
            return await _grants(log, await log.find(session))

        return self._ask(look, look_quickly)

    def choices(self, question: str) -> list[Candidate]:
        """Return the possible answers to `question`."""
        asked = [each for each in self._questions() if each.id.startswith(question)]
        choices = dict.fromkeys(choice for each in asked for choice in each.question.choices)
        return [Candidate(choice) for choice in choices]

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

    def _questions(self) -> list[OpenQuestion]:
        async def look(store: Store) -> list[OpenQuestion]:
            return await store.questions()

        return self._ask(look, _questions_in_force)

    def _ask(
        self,
        look: Callable[[Store], Awaitable[Result]],
        look_quickly: Callable[[QuickReads], Coroutine[Any, None, Result | None]],
    ) -> Result:
        """Return the result of `look_quickly`; if it gives no result, return the result of `look`.

        `look_quickly` is used only if the store is a plain file.
        """
        file = database_file(configured_address(self._store))
        if file is not None and _KEYS.isdisjoint(os.environ):
            found = quick_reads.read_quickly(file, self._namespace, look_quickly)
            if found is not None:
                return found

        async def ask_store() -> Result:
            async with store_access.existing_store(self._store, self._namespace) as store:
                return await look(store)

        return asyncio.run(ask_store())


async def _newest(log: LogReader, session: StreamId) -> list[Candidate]:
    """Return the newest tree entries of `session`, newest first."""
    previews: Any = importlib.import_module("perdure.apps.terminal.previews")
    found: list[Candidate] = []
    for entry in reversed(await log.tree(session, MOST_ENTRIES)):
        preview = previews.preview_of(entry, _PREVIEW_CELLS)
        name = previews.entry_name(entry.id, session)
        found.append(Candidate(name, f"{preview.who}: {preview.what}"))
    return found


async def _grants(log: LogReader, session: StreamId) -> list[Candidate]:
    """Return the grants of `session` that are in force."""
    grant_id: Any = importlib.import_module("perdure.tools.approval").grant_id
    so_far, is_in_force = await authority.carried_in_force(log, session)
    return [Candidate(grant_id(each), each) for each in sorted(so_far.granted) if is_in_force]


async def _questions_in_force(log: QuickReads) -> list[OpenQuestion] | None:
    """Return the open questions of sessions.

    Returns None if there are flows, because this function does not read the questions of flows.
    """
    if await log.notes_of_all(protocol.FLOW_KINDS):
        return None
    log.marks = trust.own_marks(is_trusted=False, makes_key=False)
    asking = await log.open_of_all(notes.Question.kind)
    return await authority.questions_in_force(log, asking, clock.SystemClock().now_ms())


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
