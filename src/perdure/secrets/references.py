"""Refer to secrets by name: a configuration contains ``{{secrets.NAME}}``, never the value.

Pure. References are only resolved in configuration. References in the text of a model or a web page
are never resolved. If perdure resolved references in a web page, the page could name a secret, and
perdure would send the secret's value to the server of the page.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_NAME = r"[A-Za-z][A-Za-z0-9_]{0,63}"
_reference = re.compile(rf"\{{\{{\s*secrets\.({_NAME})\s*\}}\}}")
_name = re.compile(_NAME)


def is_name(name: str) -> bool:
    """Return True if `name` is a valid name of a secret."""
    return _name.fullmatch(name) is not None


def names_in(text: str) -> tuple[str, ...]:
    """Return the names of the secrets that `text` refers to, in order."""
    return tuple(found[1] for found in _reference.finditer(text))


def unfilled_in(text: str, place: str) -> str | None:
    """Return a warning if `text`, in which references are never resolved, refers to a secret."""
    names = tuple(dict.fromkeys(names_in(text)))
    if not names:
        return None
    named = ", ".join(f"{{{{secrets.{name}}}}}" for name in names)
    return (
        f"{place} contain {named}: secrets are never filled in there, so the model is sent these "
        "words; refer to secrets in tool settings only"
    )


def fill_references(text: str, value_of: Callable[[str], str]) -> str:
    """Return `text` with each reference replaced by its value.

    References in values are not resolved.
    """
    return _reference.sub(lambda found: value_of(found[1]), text)
