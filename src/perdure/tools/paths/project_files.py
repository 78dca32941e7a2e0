"""Read perdure's own files in an untrusted folder, with the same restrictions as a tool.

The rules are those for a tool that gets the path (`jail`), with an additional size limit. Links
cannot lead out of the folder. Files that are closed to tools (`floors`) are not read. The reader is
never blocked, not even by a pipe.
"""

from __future__ import annotations

import os
from pathlib import Path

from perdure.bounds.limits import limits
from perdure.errors import ConfigError, LimitExceeded, ToolError
from perdure.tools.paths.floors import is_protected
from perdure.tools.paths.jail import Jail
from perdure.tools.paths.own_places import floors_of, names_of_place

_TOOL = "files"


def read_inside(
    root: Path,
    path: str,
    *,
    record: Path | None = None,
    limit: str = "document_bytes",
    name: str | None = None,
) -> bytes:
    """Return the content of the file `path` below `root`. Blocks the thread.

    `record` is the record folder of the flow that needs the file. `name` is the name of the file in
    errors (default: `path`).
    Raises: ConfigError if the file is missing or must not be read. Raises LimitExceeded if the file
    is larger than `limit`.
    """
    most: int = getattr(limits(), limit)
    floors = floors_of(os.environ, record=record)
    name = path if name is None else name
    try:
        with (
            Jail(root, _TOOL, floors=floors).file(path) as descriptor,
            os.fdopen(os.dup(descriptor), "rb") as file,
        ):
            content = file.read(most + 1)
    except ToolError as error:
        reason = error.reason.replace("the working directory", "the project")
        raise ConfigError(f"{name} cannot be read: {reason}") from None
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}") from None
    if len(content) > most:
        raise LimitExceeded(name, limit, most)
    return content


def text_inside(
    root: Path, path: str, *, record: Path | None = None, name: str | None = None
) -> str:
    """Return the UTF-8 text of the file `path` below `root`, with universal newlines.

    For `record` and `name`, see `read_inside`.
    Raises: the errors of `read_inside`. Raises UnicodeDecodeError if the file is not UTF-8.
    """
    text = read_inside(root, path, record=record, name=name).decode()
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_workflow(path: Path) -> str:
    """Return the UTF-8 text of the workflow file `path`, which a person named.

    Links that lead out of the file's folder are not followed. For a file below the current
    directory, links can lead anywhere inside the current directory. Blocks the thread. Raises:
    ConfigError if the file is not UTF-8. Raises the errors of `text_inside`.
    """
    whole, here = Path(os.path.abspath(path)), Path.cwd()  # noqa: PTH100 - links stay as they are
    root = here if whole.is_relative_to(here) else whole.parent
    try:
        return text_inside(root, whole.relative_to(root).as_posix(), name=str(path))
    except UnicodeDecodeError as error:
        raise ConfigError(f"the workflow {path} cannot be read: {error}") from error


def is_there(root: Path, path: str) -> bool:
    """Return True if `root` contains `path`, even if `path` is a dangling link."""
    return os.path.lexists(root / path)


def require_writable(root: Path, folder: Path) -> None:
    """Check that tools could write to the record folder `folder` in the workspace `root`.

    A `folder` below `root` must not lead outside of `root`. A `folder` elsewhere must not be a
    place that is closed to tools (`floors`). Blocks the thread. Raises: ConfigError if tools could
    not write to `folder`.
    """
    top, place = Path(os.path.realpath(root)), Path(os.path.abspath(folder))  # noqa: PTH100 - a link is to be seen
    base = Path(os.path.abspath(root))  # noqa: PTH100 - a link is to be seen
    is_inside = place != base and place.is_relative_to(base)
    where = top / place.relative_to(base) if is_inside else place
    floors = floors_of(os.environ)
    names = (where.relative_to(top) if is_inside else where).parts
    if is_protected(names[not is_inside :], is_absolute=not is_inside) or floors.is_closed(
        names_of_place(where)
    ):
        raise ConfigError(f"{folder} cannot be a record folder: the path is protected")
    floors = floors.with_record(where)
    jail = Jail(top if is_inside else Path("/"), _TOOL, has_walls=is_inside, floors=floors)
    name = (where.relative_to(top) if is_inside else where).as_posix()
    try:
        for file in ("x", "findings/x"):
            with jail.plan_place(f"{name}/{file}", makes_parents=True):
                pass
    except ToolError as error:
        raise ConfigError(f"{folder} cannot be a record folder: {error.reason}") from None
