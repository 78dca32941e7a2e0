"""Options for the store, the namespace and the session of a command, and for the output format.

A session is named by its id, a prefix of its id, or a session file. Text with a slash is a path,
because ids contain no slash. Text with the suffix of a session file is a path, unless it is the id
of a session. A file name means the session that was imported from the file; a file that was not
imported is an error.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from difflib import get_close_matches
from pathlib import Path, PurePath
from typing import get_args

import msgspec

from perdure.apps.cli.exits import (
    ImportNeeded,
    InOtherNamespace,
    PathNotFound,
    StoreFolderNotFound,
    StoreNotFound,
    TitleGiven,
    UsageMistake,
)
from perdure.apps.cli.options import JsonOption, NamespaceOption, StoreOption
from perdure.apps.store_access import (
    NAMESPACE,
    existing_store,
    is_missing,
    store_address,
    writable_store,
)
from perdure.apps.terminal.output import count_of, remark, show_result
from perdure.apps.terminal.text import one_line, safe
from perdure.client.lookup.session_files import find_file
from perdure.client.lookup.store_files import (
    database_file,
    default_address,
    near_address,
    own_folders,
)
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.errors import AmbiguousId, NotImported, PerdureError, SessionNotFound
from perdure.interop.reports import Format
from perdure.session.ids import StreamId

_ENDINGS = (".json", ".jsonl")
_LIKE = 0.5
"""Minimum similarity, from 0 to 1, of a name that is suggested instead of a mistyped one."""

_LISTED = 5
"""Maximum number of folders that a message names."""

_TITLES = 3
"""Maximum number of sessions that a message names; each title has at most `_TITLE_CELLS` cells."""

_TITLE_CELLS = 40


class CommonOptions(msgspec.Struct, frozen=True):
    """The options of most commands: the store and namespace to use, and the output format.

    A command that declares a parameter of this type has the options of all fields.
    """

    store: StoreOption = None
    namespace: NamespaceOption = NAMESPACE
    as_json: JsonOption = False

    def writable_store(self) -> AbstractAsyncContextManager[Store]:
        """Open the store; create it if it does not exist.

        Raises: StoreFolderNotFound if the folder of the store does not exist; the errors of
        `perdure.open`.
        """
        require_store_folder(store_address(self.store))
        return writable_store(self.store, self.namespace)

    def existing_store(self) -> AbstractAsyncContextManager[Store]:
        """Open the store, which must exist.

        A SessionNotFound in the ``async with`` becomes InOtherNamespace if the default namespace
        has that session.
        Raises: StoreNotFound if the store does not exist; UsageMistake for an empty address; the
        errors of `perdure.open`.
        """
        return _telling_elsewhere(existing_address(self.store), self.namespace)

    @asynccontextmanager
    async def opened_session(self, named: str) -> AsyncGenerator[tuple[Store, Session]]:
        """Open the store, which must exist, and the session that `named` identifies in it.

        Raises: the errors of `existing_store` and of the function `opened_session`.
        """
        async with self.existing_store() as opened:
            yield opened, await opened_session(opened, named)

    def show(self, data: object, lines: str | Iterable[str]) -> None:
        """Write a result: `data` as JSON, or `lines` as text. Raises: OutputClosed."""
        show_result(data, lines, as_json=self.as_json)


@asynccontextmanager
async def _telling_elsewhere(address: str, namespace: str) -> AsyncGenerator[Store]:
    try:
        async with existing_store(address, namespace) as store:
            yield store
    except SessionNotFound as error:
        if namespace == NAMESPACE or type(error) is not SessionNotFound:
            raise
        try:
            async with existing_store(address) as store:
                with suppress(AmbiguousId):  # several sessions begin so: it names them there
                    await store.find(error.stream)
        except PerdureError:  # it is not there either, or that namespace cannot be opened
            raise error from None
        raise InOtherNamespace(error.stream, namespace, NAMESPACE) from None


async def nothing_found(store: str | None, namespace: str) -> str:
    """Return the text for a search without hits.

    If `namespace` is not the default namespace, the text contains the namespace.
    """
    if namespace == NAMESPACE:
        return "Nothing found."
    has_others = False
    with suppress(PerdureError):  # with routes, that namespace may be in no database
        async with existing_store(existing_address(store)) as opened:
            has_others = bool(await opened.recent(1, scope="all"))
    told = f"Nothing found in the namespace {safe(namespace)}"
    if has_others:
        told += f"; the namespace {NAMESPACE} has sessions, too: add `--namespace {NAMESPACE}`"
    return f"{told}."


async def sessions_in_default(store: str | None, opened: Store) -> str:
    """Return a sentence on the sessions of the default namespace, to print below an empty list.

    Returns "" if `opened` is the default namespace, or if the default namespace has no sessions.
    `store` is the value of --store. Other namespaces are never shown, because they can belong to
    other tenants.
    """
    if opened.backend.namespace == NAMESPACE:
        return ""
    count = 0
    with suppress(PerdureError):  # with routes, that namespace may be in no database
        async with existing_store(existing_address(store), NAMESPACE) as other:
            count = len(await other.recent(None))
    told = f"The namespace {NAMESPACE} has {count_of(count, 'session')}"
    return f"{told}; add `--namespace {NAMESPACE}` to list them." if count else ""


def existing_address(store: str | None) -> str:
    """Return the address of the store that a command uses.

    Raises: StoreNotFound if the store does not exist; UsageMistake for an empty address.
    """
    if store is not None and not store.strip():
        raise UsageMistake("--store is empty: write an address, such as sqlite:///agents.db")
    address = store_address(store)
    if is_missing(address):
        raise StoreNotFound(address, near_address(address))
    return address


def require_store_folder(address: str) -> None:
    """Require that the folder of the store at `address` exists, even if the store does not.

    The default address is not checked, because its folder is created together with the store.
    Raises: StoreFolderNotFound.
    """
    if address == default_address(os.environ, sys.platform):
        return
    scheme, _, rest = address.partition(":///")
    file = database_file(address)
    for place in own_folders(address) if file is None else (file,):
        if not place.parent.is_dir():
            is_near = not rest.startswith("/") and Path("/", rest).parent.is_dir()
            near = f"{scheme}:////{rest}" if is_near else None
            raise StoreFolderNotFound(str(place.parent), near)


async def opened_session(store: Store, named: str) -> Session:
    """Open the session that `named` identifies: by id, beginning of an id, or imported file.

    Raises: SessionNotFound if no session matches; AmbiguousId if several match.
    Raises: PathNotFound if a file does not exist; ImportNeeded if it was not imported; FormatError
    if it is not a session file; UsageMistake if `named` is a folder or an entry.
    """
    return await store.open(await named_session(store, named))


async def named_session(store: Store, named: str) -> StreamId:
    """Return the id of the session that `named` identifies, as in `opened_session`.

    Raises: the errors of `opened_session`.
    """
    if "/" not in named:
        try:
            return await find_session(store, named)
        except SessionNotFound:
            if not named.endswith(_ENDINGS):
                raise
    path = await asyncio.to_thread(Path(named).expanduser)
    if path.is_dir():
        raise UsageMistake(f"{named} is a folder: name one file of it, or a session's id")
    if not path.is_file():
        await _require_no_entry(store, named)
        raise PathNotFound(named)
    try:
        found = await find_file(store.backend, path)
    except NotImported:
        raise ImportNeeded(named) from None
    if found.is_behind:
        remark(f"{safe(named)} has changed since it was imported; `perdure import` adds the rest")
    return found.session


async def find_session(store: Store, typed: str) -> StreamId:
    """Return the session with the id `typed`, or the only session whose id begins with `typed`.

    Raises: AmbiguousId if several ids match; SessionNotFound if no id matches, or its subclass
    TitleGiven if the title of a session contains `typed`.
    """
    try:
        return await store.find(typed)
    except SessionNotFound:
        part = typed.strip().casefold()
        found = await store.recent(_LISTED, scope="all", query=part) if part else []
        titled = [each for each in found if part in each.name.casefold()][:_TITLES]
        if not titled:
            raise
    raise TitleGiven(typed, {each.id: one_line(each.name, _TITLE_CELLS) for each in titled})


async def _require_no_entry(store: Store, named: str) -> None:
    """Raises: UsageMistake if `named` is the id of an entry, ``SESSION/NUMBER``."""
    session, _, number = named.rpartition("/")
    if not number.isdecimal() or "/" in session:
        return
    with suppress(SessionNotFound, AmbiguousId):
        await store.find(session)
        raise UsageMistake(f"{named} is an entry: name its session, which is {session}")


async def named_folder(store: Store, named: str | None) -> str | None:
    """Return the folder that ``--cwd`` names; None means any folder.

    A path that does not exist is compared with the ends of all sessions' folder paths, because
    `sessions list` shows only these ends.
    Raises: UsageMistake if the path is the end of several folders.
    """
    parts = PurePath(named or "").parts
    if named is None or not parts or named[0] in "/~" or parts[0] == "..":
        return named
    if await asyncio.to_thread(Path(named).exists):
        return named
    folders = {info.cwd for info in await store.recent(None, scope="all") if info.cwd}
    found = sorted(each for each in folders if PurePath(each).parts[-len(parts) :] == parts)
    if len(found) > 1:
        listed = ", ".join(found[:_LISTED]) + (", …" if len(found) > _LISTED else "")
        raise UsageMistake(
            f"--cwd {safe(named)}: {len(found)} folders end so, name one of them: {safe(listed)}"
        )
    return found[0] if found else named


async def require_known(store: Store, folder: str | None, source: str | None) -> None:
    """Check that the filters of a list without results name a known folder and program.

    Raises: PathNotFound if a folder does not exist and has no sessions; UsageMistake if a program
    is neither known nor the source of a session.
    """
    if folder is not None and not await store.recent(1, scope="all", cwd=folder):
        require_folder(Path(folder))
    if source is None or await store.recent(1, scope="all", source=source):
        return
    names: tuple[str, ...] = get_args(Format)
    if source not in names:
        longer = [name for name in names if name.startswith(source)]
        like = longer or get_close_matches(source, names, 1, _LIKE)
        meant = f"; did you mean {like[0]}?" if like else ""
        raise UsageMistake(f"no program {source!r}: use one of {', '.join(names)}{meant}")


def require_folder(named: Path) -> None:
    """Raises: PathNotFound when `named` does not exist; UsageMistake when it is not a folder."""
    if named.is_dir():
        return
    if named.exists():
        raise UsageMistake(f"{named} is a file: name a folder after --cwd")
    raise PathNotFound(str(named))
