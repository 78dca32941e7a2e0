"""Find paths that identify a user: home directories, working directories, user names.

The functions of this module are pure. The parts of a path that identify no user stay unchanged:
``[home-1]/src/table.py`` still names the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from perdure.interop.redaction.known_values import KnownValues
from perdure.secrets.shapes import BEGINS, Find

_BEFORE = r"(?:(?<![\w.-])|(?<=\\[nrtbf]))"
_NAME = r"""[^\s/\\:;,"'`<>|()\[\]{}*?$=&#!]{1,64}"""

_home = re.compile(
    rf"{_BEFORE}(?:/(?:usr|var|export|private|host|mnt/[a-z]|[a-z]|System/Volumes/Data))?"
    rf"/(?:home|Users|users)/({_NAME})(?<![.])"
    r"|(?i:(?<![A-Za-z])[a-z]:\\{1,4}users\\{1,4}([^\\/:*?\"<>|\r\n]{1,40}?(?=\\)|[^\\/:*?\"<>|\s]{1,40}))"
    rf"|{_BEFORE}/root(?![\w.-])"
)
_tilde = re.compile(r"(?<![\w/~.])~([A-Za-z_][\w-]{1,31})(?=/)")
_begins = re.compile(BEGINS)
_WORD = re.compile("[A-Za-z0-9]")
_temporary = re.compile(rf"{_BEFORE}(?:/private)?/var/folders/\w{{2}}/\w{{10,}}")

# Names of accounts and folders that say nothing about a person.
_NOBODY = frozenset(
    [
        *("user", "users", "root", "admin", "administrator", "ubuntu", "debian", "fedora"),
        *("centos", "ec2-user", "vagrant", "runner", "node", "app", "home", "test", "dev"),
        *("developer", "guest", "public", "shared", "default", "all", "me", "you", "name"),
        *("username", "work", "code", "docker", "git", "www-data", "nobody", "circleci", "jenkins"),
        *("vscode", "codespace", "gitpod", "jovyan", "coder", "agent", "assistant", "tool"),
        *("system", "context", "read", "write", "session", "your-name", "your_name"),
        *("someone", "example"),
    ]
)
_HINTS = ("/home/", "users", "/root", "/var/folders/", "~")

SHORTEST_NAME = 3
"""Shorter user names are replaced only in home directories, because they match in many texts."""


def homes(text: str) -> Iterator[Find]:
    """Yield the home directories in `text`."""
    if not _may_have_home(text):
        return
    for found in _home.finditer(text):
        yield Find(found.start(), found.end(), "home")
    for found in _temporary.finditer(text):
        yield Find(found.start(), found.end(), "folder")
    for found in _tilde.finditer(text):
        yield Find(found.start(1), found.end(1), "user")


def users(text: str) -> Iterator[str]:
    """Yield the user names in home directories of `text`."""
    if not _may_have_home(text):
        return
    for found in _home.finditer(text):
        name = found[1] or found[2]
        if name and is_person(name):
            yield name


def _may_have_home(text: str) -> bool:
    """Return whether a text might contain a home directory; most texts contain none."""
    lowered = text.lower()
    return any(hint in lowered for hint in _HINTS)


def is_person(name: str) -> bool:
    """Return whether the user name `name` is replaced wherever it occurs as a separate word."""
    return len(name) >= SHORTEST_NAME and name.lower() not in _NOBODY and not name.isdigit()


def is_telling(folder: str) -> bool:
    """Return whether the path `folder` is specific enough to be replaced in all texts."""
    return len(folder.strip("/\\")) > 1 and ("/" in folder or "\\" in folder)


def folder_pattern(folders: Iterable[str]) -> re.Pattern[str] | None:
    """Return a pattern that matches any of `folders` at the start of a path, longer ones first."""
    known = sorted({folder.rstrip("/\\") for folder in folders}, key=len, reverse=True)
    if not known:
        return None
    shapes = (re.escape(folder).replace(r"\\", r"\\{1,4}") for folder in known)
    return re.compile(rf"{_BEFORE}(?:{'|'.join(shapes)})(?![\w-]|\.\w)")


def people(names: KnownValues, text: str) -> Iterator[Find]:
    """Yield each of the lower-case `names` that is a separate word in `text`."""
    small = "".join(map(_small, text)) if len(text.lower()) != len(text) else text.lower()
    for start, end in names.spans(small):
        if _begins.match(text, start) and not _WORD.match(text, end):
            yield Find(start, end, "user")


def _small(character: str) -> str:
    """Return `character` in lower case; unchanged if the lower case has several characters."""
    small = character.lower()
    return small if len(small) == 1 else character
