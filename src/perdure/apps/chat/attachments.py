"""Files that the user sends with a message: media as message parts, texts as code blocks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.exits import PathNotFound
from perdure.apps.terminal.output import size
from perdure.apps.terminal.text import one_line
from perdure.bounds.files import read_named
from perdure.bounds.limits import require_within
from perdure.client.agents.message_secrets import Said
from perdure.errors import PerdureError, WrongArgument
from perdure.session.media.inline import InlineMedia, media, type_of
from perdure.session.messages import InFlightMessage, user
from perdure.tools.paths.floors import is_secret
from perdure.tools.paths.own_places import floors_of, names_of_place, places_of_store

_MENTION = re.compile(r"(?<!\S)[(\[{<\"'`]*@(\S{1,400})")
_QUOTED = re.compile(r"(?<!\S)[(\[{<]*@\"([^\"\n]{1,400})\"")
_PUNCTUATION = ".,;:!?)]}>\"'`"
_NAMED = 3
"""Maximum number of missing files that a remark names."""

_CELLS = 200
_NAME_CELLS = 40


AttachOption = Annotated[
    list[str] | None,
    typer.Option("--attach", metavar="FILE", help="With -p: a file to send with the message."),
]


class Attached(msgspec.Struct, frozen=True):
    """A file to send: its name as the user wrote it, its size and its content."""

    name: str
    size_bytes: int
    content: str | InlineMedia


def attach(name: str, folder: Path) -> Attached:
    """Read the file `name`, relative to `folder`, for a message.

    Raises: PathNotFound if the file does not exist; WrongArgument if it is a folder, or neither
    text nor media; LimitExceeded if it is too large; OSError if it cannot be read.
    """
    path = folder / Path(name).expanduser()
    if path.is_dir():
        raise WrongArgument(f"{name} is a folder: attach a file of it")
    if not path.is_file():
        raise PathNotFound(name)
    data = read_named(path, "message_bytes", name)
    if type_of(data) is not None:
        return Attached(name, len(data), media(data, name=path.name))
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise WrongArgument(f"{name} is neither text nor an image, audio, video or PDF")
    return Attached(name, len(data), f"{name}:\n{fenced(text)}")


class Mentions(msgspec.Struct, frozen=True):
    """The files that a message names as ``@name``: those to attach, and remarks on the others."""

    attached: tuple[Attached, ...] = ()
    remarks: tuple[str, ...] = ()


def attach_mentioned(
    text: str,
    folder: Path,
    address: str,
    known: Iterable[str] = (),
    *,
    command: str = "/attach",
) -> Mentions:
    """Read the files of `folder` that `text` names as ``@name``.

    A name with blanks is in quotation marks: ``@"my notes.md"``. Files in `known` are skipped.

    A file outside the folder is not attached, because the text might be pasted. A file that the
    tools of a session in the store at `address` cannot read is not attached. For each file outside
    the folder, and for each file that the tools cannot read, the result has a remark that `command`
    attaches the file.
    """
    floors = floors_of(os.environ, places_of_store(address))
    for name in sorted(known, key=len, reverse=True):  # a completed name may have spaces
        text = _mention_of(name).sub("", text)
    attached: list[Attached] = []
    missing: list[str] = []
    remarks: list[str] = []
    quoted = _QUOTED.findall(text)
    words = (*quoted, *_MENTION.findall(_QUOTED.sub("", text)))
    for word in dict.fromkeys(words):
        bare = word if word in quoted else word.rstrip(_PUNCTUATION)
        name = next((each for each in (word, bare) if _is_in(folder, each)), None)
        place = () if name is None else names_of_place(folder / name)
        if name is None and _is_file(folder, bare):
            remarks.append(f"@{bare} is outside the folder; {command} {bare} attaches it")
        elif name is None:
            missing.append(f"@{bare}")
        elif is_secret(place, is_absolute=True) or floors.is_closed(place):
            remarks.append(f"@{name} may hold credentials; {command} {name} attaches it")
        else:
            try:
                attached.append(attach(name, folder))
            except (PerdureError, OSError) as error:
                remarks.append(f"@{name} is not attached: {error}")
    if missing:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        named = f"{', '.join(missing[:_NAMED])}{more}"
        remarks.append(f"sent as text, because the folder has no such file: {named}")
        if any(_begins_name(folder, each.removeprefix("@")) for each in missing[:_NAMED]):
            remarks.append('write a name with blanks in quotation marks: @"my notes.md"')
    return Mentions(tuple(attached), tuple(one_line(each, _CELLS) for each in remarks))


_INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md")
"""Files with instructions for agents; other programs read these files, but perdure does not."""


def unread_instructions(folder: Path, said: str) -> str | None:
    """Return a remark that instruction files in `folder` are not read.

    Returns None if there are no instruction files, or if the message `said` names one of them.
    """
    found = [name for name in _INSTRUCTIONS if (folder / name).is_file()]
    if not found or any(is_mentioned(name, said) for name in found):
        return None
    told = f"{' and '.join(found)} {'is' if len(found) == 1 else 'are'} not read"
    return f"{told}: write @{found[0]} in a message, or use an agent file (perdure chat --agent)"


def is_mentioned(name: str, text: str) -> bool:
    """Whether `text` names the file `name` as ``@name``; ``@name.md`` is another file."""
    return _mention_of(name).search(text) is not None


def _mention_of(name: str) -> re.Pattern[str]:
    return re.compile(rf"@{re.escape(name)}(?=[{re.escape(_PUNCTUATION)}]*(?:\s|\Z))")


def _is_in(folder: Path, name: str) -> bool:
    """Return whether `name` is a file inside `folder`, even after resolving symbolic links."""
    path = folder / name
    try:
        is_inside = path.resolve().is_relative_to(folder.resolve())
        return bool(name) and not name.startswith("~") and is_inside and path.is_file()
    except (OSError, ValueError):
        return False


def attached_line(attached: Sequence[Attached]) -> str:
    """Return the names and sizes of files on one line."""
    return ", ".join(
        f"{one_line(each.name, _NAME_CELLS)} ({size(each.size_bytes)})" for each in attached
    )


def detach(attached: list[Attached], name: str) -> list[Attached]:
    """Remove the file `name` (all files if "") from `attached`; return the removed files.

    Raises: WrongArgument if no attached file has this name.
    """
    gone = [each for each in attached if name in ("", each.name)]
    if not gone:
        told = f"{name} is not attached; /attach lists the attached files"
        raise WrongArgument(told if attached else "no file is attached")
    attached[:] = [each for each in attached if each not in gone]
    return gone


def _begins_name(folder: Path, word: str) -> bool:
    """Return whether the name of a file in `folder` begins with `word` and a blank."""
    try:
        names = [each.name for each in (folder / word).parent.iterdir()]
    except (OSError, ValueError):
        return False
    return any(name.startswith(f"{Path(word).name} ") for name in names)


def _is_file(folder: Path, name: str) -> bool:
    """Return whether `name`, relative to `folder`, is a file; the file can be outside `folder`."""
    try:
        return (folder / Path(name).expanduser()).is_file()
    except (OSError, ValueError, RuntimeError):
        return False


def fenced(text: str) -> str:
    """Return `text` as a block of Markdown code whose fence does not occur in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip()}\n{fence}"


def message_with(text: str, attached: Sequence[Attached]) -> Said | InFlightMessage:
    """Return the message that contains `text` and the attached files.

    Raises: LimitExceeded if the message would be too large.
    """
    if not attached:
        return text
    contents = [each.content for each in attached]
    texts = [text, *(each for each in contents if isinstance(each, str))]
    total = sum(len(each.encode(errors="replace")) for each in texts)
    require_within("message_bytes", total, "the message")
    return user(text, *contents)
