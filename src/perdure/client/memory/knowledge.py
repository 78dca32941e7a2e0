"""Knowledge folders: index their files, and follow their changes.

Each file is a session of origin ``knowledge`` with one entry for each passage. A recall finds the
passages of a knowledge folder in the same way as messages. A changed file becomes a new session;
the old session is erased.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from perdure.client.clock import Outside, absolute
from perdure.client.erase import erase_session, existing_or_created
from perdure.errors import Erased, SessionNotFound, Unsupported, WrongArgument
from perdure.memory.knowledge import ENDINGS, KNOWLEDGE, MARKDOWN, MOST_BYTES, Passage, passages_of
from perdure.memory.reports import ImportedFolder, Unread
from perdure.secrets.pasted_keys import credentials_in
from perdure.session.codec import new_tree
from perdure.session.entries import NewEntry, Sibling
from perdure.session.ids import StreamId
from perdure.session.info import SessionInfo, StreamHeader
from perdure.stores.session_store import SessionStore

_log = logging.getLogger(__name__)

MOST_FILES = 10_000
"""Maximum number of files that are indexed in one folder."""

_MOST_PASSAGES = 5_000

_IDS = "knowledge-"
"""Prefix of the ids of sessions that contain files.

A list of sessions by id prefix uses an index.
"""

_DEEPEST = 64
"""Maximum depth below a knowledge folder at which folders are read."""

_AT_ONCE = 4 * 1024 * 1024
"""Files are read and indexed in batches of approximately this size. Units: bytes."""


class _Found(msgspec.Struct, frozen=True):
    """A file in a knowledge folder; `content` is None if the file cannot be indexed now."""

    path: str
    content: str | None
    digest: str = ""


class _Known(msgspec.Struct, frozen=True):
    """An indexed file."""

    stream: StreamId
    path: str
    digest: str
    passages: int


async def index_folder(
    store: SessionStore, outside: Outside, folder: Path, subject: str | None
) -> ImportedFolder:
    """Index the files below `folder` for `subject`; remove files that no longer exist.

    Raises: Unsupported in a store of session files; WrongArgument if `folder` is not a readable
    folder.
    """
    if not store.capabilities.erase:
        raise Unsupported("knowledge", store.address.partition(":")[0])
    root = Path(absolute(folder) or ".")
    reader = _Reader(root)
    problems, batches = reader.problems, reader.batches()
    batch = await asyncio.to_thread(next, batches, None)
    known = [each for info in await _documents(store, subject) if (each := _known(info, root))]
    before = {each.path: each for each in known}
    counts, added, changed = dict[str, int](), list[str](), list[str]()
    kept: set[StreamId] = set()
    while batch is not None:
        for file in batch:
            old = before.get(file.path)
            if file.content is None or (old is not None and old.digest == file.digest):
                if old is not None:
                    kept.add(old.stream)
                    counts[file.path] = old.passages
                continue
            passages, warning = await asyncio.to_thread(_passages, file)
            problems += [Unread(file.path, warning)] if warning else []
            (added if old is None else changed).append(file.path)
            stored = await _store_file(store, outside, file, passages, root=root, subject=subject)
            kept.add(stored)
            counts[file.path] = len(passages)
        batch = await asyncio.to_thread(next, batches, None)
    closed = tuple(reader.closed)
    for each in known:
        if each.path.startswith(closed):
            counts[each.path] = each.passages
        elif each.stream not in kept:
            with suppress(SessionNotFound, Erased):  # another process was first
                await erase_session(store, outside, each.stream, forks="erase", by=None)
    return ImportedFolder(
        files=len(counts),
        passages=sum(counts.values()),
        added=tuple(added),
        changed=tuple(changed),
        removed=tuple(sorted(before.keys() - counts.keys())),
        problems=tuple(problems),
    )


async def files_of(store: SessionStore, subject: str | None) -> frozenset[StreamId]:
    """Return the sessions that contain the knowledge of `subject`."""
    return frozenset(info.id for info in await _documents(store, subject))


class FolderWatch:
    """Indexes the knowledge folders of an agent when a file in them has changed.

    A relative folder is resolved in `working_dir`.
    """

    def __init__(
        self, store: SessionStore, outside: Outside, folders: tuple[str, ...], working_dir: Path
    ) -> None:
        self._store = store
        self._outside = outside
        self._folders = tuple(working_dir / folder for folder in folders)
        self._working_dir = working_dir
        self._is_own = tuple(not Path(folder).is_absolute() for folder in folders)
        self._seen: dict[Path, bytes] = {}

    async def follow(self, subject: str) -> list[str]:
        """Index changed files; return one problem for each folder that could not be indexed."""
        problems: list[str] = []
        for folder, is_own in zip(self._folders, self._is_own, strict=True):
            try:
                state = await asyncio.to_thread(self._state_of, folder, is_own=is_own)
                if self._seen.get(folder) == state:
                    continue
                done = await index_folder(self._store, self._outside, folder, subject)
            except (WrongArgument, OSError) as error:
                problems.append(f"knowledge: {error}")
                continue
            self._seen[folder] = state
            for each in done.problems:
                _log.warning("knowledge: %s in %s: %s", each.path, folder, each.reason)
        return problems

    def _state_of(self, folder: Path, *, is_own: bool) -> bytes:
        """Return a digest of the names, sizes and times of the files below `folder`.

        Raises: WrongArgument.
        """
        if is_own and not folder.resolve().is_relative_to(self._working_dir.resolve()):
            raise WrongArgument(f"{folder} is outside of the working folder", argument="knowledge")
        digest = hashlib.blake2b(digest_size=16)
        for each in _folders_in(folder, lambda _path, _error: None):
            for name in each.files:
                found = os.stat(name, dir_fd=each.descriptor, follow_symlinks=False)
                told = (str(each.path), name, found.st_mtime_ns, found.st_size)
                digest.update(repr(told).encode("utf-8", "backslashreplace"))
        return digest.digest()


async def _documents(store: SessionStore, subject: str | None) -> list[SessionInfo]:
    listed = await store.sessions(limit=None, scope="all", subject=subject, id_prefix=_IDS)
    return [each for each in listed if each.origin == KNOWLEDGE and each.subject == subject]


def _known(info: SessionInfo, root: Path) -> _Known | None:
    """Return the indexed file that `info` describes; None if it is not from the folder `root`."""
    described = (info.metadata or {}).get(KNOWLEDGE)
    try:
        kept = msgspec.convert(described, dict[str, str | int])
        if kept["folder"] != str(root):
            return None
        return _Known(info.id, str(kept["path"]), str(kept["digest"]), int(kept["passages"]))
    except (msgspec.ValidationError, KeyError, ValueError):
        return None


async def _store_file(
    store: SessionStore,
    outside: Outside,
    file: _Found,
    passages: list[Passage],
    *,
    root: Path,
    subject: str | None,
) -> StreamId:
    """Store `passages` as a session; return its id, which is computed from the file."""
    named = "\0".join((subject or "", str(root), file.path, file.digest))
    name = hashlib.blake2b(named.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
    described = {
        "folder": str(root),
        "path": file.path,
        "digest": file.digest,
        "passages": len(passages),
    }
    header = StreamHeader(
        id=StreamId(f"{_IDS}{name}"),
        created_at=outside.clock.now_ms(),
        origin=KNOWLEDGE,
        title=file.path[:200],
        metadata={KNOWLEDGE: described},
        subject=subject,
    )
    entries: list[NewEntry] = []
    for place, passage in enumerate(passages):
        new = new_tree(passage.entry_body(file.path))
        entries.append(msgspec.structs.replace(new, parent=Sibling(place - 1)) if place else new)
    return (await existing_or_created(store, header, tuple(entries))).id


def _passages(file: _Found) -> tuple[list[Passage], str | None]:
    """Return the passages of `file` without credentials, and a message about omitted passages."""
    assert file.content is not None
    is_markdown = Path(file.path).suffix.lower() in MARKDOWN
    found = passages_of(file.content, is_markdown=is_markdown)
    if len(found) > _MOST_PASSAGES:
        return found[:_MOST_PASSAGES], f"only its first {_MOST_PASSAGES:,} passages are indexed"
    clean = [each for each in found if not any(credentials_in(each.text))]
    if len(clean) == len(found):
        return found, None
    count = len(found) - len(clean)
    return clean, f"{count} of its passages look like a credential and are left out"


# -- reading a folder


class _Folder(NamedTuple):
    """An open folder: its path relative to the root folder, and the names of its content."""

    path: Path
    descriptor: int
    folders: list[str]
    files: list[str]
    links: list[str]


def _folders_in(root: Path, on_error: Callable[[Path, OSError], None]) -> Iterator[_Folder]:
    """Yield `root`, which can be a link, and all folders below it; other links are not followed.

    For a folder that cannot be read, `on_error` is called with its path relative to `root`.
    """
    yield from _opened(os.path.realpath(root), None, Path(), on_error)


def _opened(
    name: str, above: int | None, path: Path, on_error: Callable[[Path, OSError], None]
) -> Iterator[_Folder]:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=above)
    except OSError as error:
        on_error(path, error)
        return
    try:
        with os.scandir(descriptor) as entries:
            shown = [each for each in entries if not each.name.startswith(".")]
        links = sorted(each.name for each in shown if _is_link_to_folder(each))
        folders = sorted(each.name for each in shown if each.is_dir(follow_symlinks=False))
        files = sorted({each.name for each in shown if _is_text(each.name)} - {*folders, *links})
        yield _Folder(path, descriptor, folders, files, links)
        for each in folders if len(path.parts) < _DEEPEST else ():
            yield from _opened(each, descriptor, path / each, on_error)
    except OSError as error:
        on_error(path, error)
    finally:
        os.close(descriptor)


def _is_link_to_folder(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):  # a link to itself
        return entry.is_symlink() and entry.is_dir()
    return False


def _is_text(name: str) -> bool:
    return Path(name).suffix.lower() in ENDINGS


class _Reader:
    """Reads the files below a folder, without following any link in the folder.

    `closed` lists the folders that cannot be read. `closed` and `problems` are complete when all
    files are read.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.problems: list[Unread] = []
        self.closed: list[str] = []

    def batches(self) -> Iterator[list[_Found]]:
        """Read all files, several at a time. Raises: WrongArgument if the folder cannot be read."""
        if not self._root.is_dir():
            raise WrongArgument(f"{self._root} is no folder", argument="folder")
        batch, size, count = list[_Found](), 0, 0
        for folder in _folders_in(self._root, self._on_error):
            for name in folder.links:
                self._report(folder.path / name, "links are not followed")
            for name in folder.folders if len(folder.path.parts) >= _DEEPEST else ():
                self._close(folder.path / name, f"it is more than {_DEEPEST} folders deep")
            for name in folder.files:
                if count >= MOST_FILES:
                    self._report(folder.path / name, f"only {MOST_FILES:,} files are indexed")
                    yield batch
                    return
                found = self._taken(folder.path / name, folder.descriptor)
                if found is not None:
                    batch.append(found)
                    count, size = count + 1, size + len(found.content or "")
                if size >= _AT_ONCE:
                    yield batch
                    batch, size = [], 0
        yield batch

    def _taken(self, path: Path, descriptor: int) -> _Found | None:
        content = None
        try:
            str(path).encode()
            content = _text_of(path.name, descriptor)
        except UnicodeEncodeError:
            self._report(path, "its name is not UTF-8")
            return None
        except OSError as error:
            is_link = error.errno == errno.ELOOP
            reason = "links are not followed" if is_link else error.strerror
            self._report(path, reason or type(error).__name__)
        except ValueError as error:
            self._report(path, str(error))
        digest = "" if content is None else hashlib.sha256(content.encode()).hexdigest()
        return _Found(path.as_posix(), content, digest)

    def _on_error(self, path: Path, error: OSError) -> None:
        if path == Path():
            raise WrongArgument(
                f"{self._root} cannot be read ({error.strerror})", argument="folder"
            ) from error
        self._close(path, f"the folder cannot be read ({error.strerror})")

    def _close(self, path: Path, reason: str) -> None:
        self.closed.append(f"{path.as_posix()}/")
        self._report(path, reason)

    def _report(self, path: Path, reason: str) -> None:
        shown = str(path).encode("utf-8", "backslashreplace").decode()
        self.problems.append(Unread(shown, reason))


def _text_of(name: str, folder: int) -> str:
    """Return the text of a file.

    Raises: OSError if the file cannot be read; ValueError, with the reason, if the file has no
    text.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is no regular file")
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES:,} bytes")
    if b"\0" in content:
        raise ValueError("it is binary")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 (byte {error.start:,})") from error
