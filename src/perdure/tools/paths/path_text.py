"""Check paths that a model gives as text: reject impossible paths before any access."""

from __future__ import annotations

import errno
import os
import re
import unicodedata

MAX_PATH = 4096

_drive = re.compile(r"[A-Za-z]:/")


class Escape(Exception):
    """Raised for a path that leads to a forbidden place; the message does not name the place."""


def names_of_text(path: str) -> list[str]:
    """Return the names in `path`, without empty names and ``.``."""
    return [name for name in path.split("/") if name not in ("", ".")]


def _is_dots(name: str) -> bool:
    """Return True if `name` looks like ``.`` or ``..`` but consists of other characters."""
    shown = unicodedata.normalize("NFKC", name)
    seen = "".join(c for c in shown if unicodedata.category(c) != "Cf")
    return seen in (".", "..") and name not in (".", "..")


def checked_path(path: str) -> str:
    """Return `path` if it is a valid path of this file system.

    Raises: Escape if `path` is not valid in this file system. Raises OSError if `path` is too long.
    """
    if "\0" in path or path.encode(errors="replace") != path.encode(errors="surrogatepass"):
        raise Escape("holds characters that no path has")
    if "\\" in path or path.startswith(("//?", "//.")) or _drive.match(path):
        raise Escape("is written for another system; put slashes between names")
    if "://" in path or any(_is_dots(name) for name in path.split("/")):
        raise Escape("is no path of a file system")
    if len(path) > MAX_PATH:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    return path
