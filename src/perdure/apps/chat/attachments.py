"""Files that the user sends with a message: media as parts, other text files as quoted text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from perdure.apps.cli.exits import PathNotFound
from perdure.bounds.files import read_named
from perdure.bounds.limits import require_within
from perdure.client.agents.message_secrets import Said
from perdure.errors import WrongArgument
from perdure.session.media.inline import InlineMedia, media, type_of
from perdure.session.messages import InFlightMessage, user


class Attached(msgspec.Struct, frozen=True):
    """A file to send: its name as the user wrote it, its size and its content."""

    name: str
    size_bytes: int
    content: str | InlineMedia


def attach(name: str, folder: Path) -> Attached:
    """Read the file `name`, relative to `folder`, for a message.

    Raises: PathNotFound; WrongArgument for a file that is neither text nor media; LimitExceeded;
    OSError.
    """
    path = folder / Path(name).expanduser()
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


def fenced(text: str) -> str:
    """Return `text` as a block of Markdown code that it cannot close."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip()}\n{fence}"


def message_with(text: str, attached: Sequence[Attached]) -> Said | InFlightMessage:
    """Return the message of `text` and of the attached files.

    Raises: LimitExceeded for more than a message may hold.
    """
    if not attached:
        return text
    contents = [each.content for each in attached]
    size = sum(len(each.encode(errors="replace")) for each in contents if isinstance(each, str))
    require_within("message_bytes", len(text.encode(errors="replace")) + size, "the message")
    return user(text, *contents)
