"""Escape literal text for templates, and replace ``{{ctx.name}}`` in instructions."""

from __future__ import annotations

import re
from collections.abc import Mapping

from perdure.errors import ConfigError

_OPENER = re.compile(r"\{(?=\{)")
_CONTEXT_NAME = re.compile(r"\{\{\s*ctx\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


def neutralise(text: str) -> str:
    """Return `text` with a space between adjacent ``{``, so that the text contains no placeholders.

    Shape: a second call changes nothing.
    """
    return _OPENER.sub("{ ", text)


def context_names(text: str) -> tuple[str, ...]:
    """Return the names in the ``{{ctx.name}}`` placeholders of `text`, each once, in order."""
    return tuple(dict.fromkeys(found[1] for found in _CONTEXT_NAME.finditer(text)))


def without_context(text: str) -> str:
    """Return `text` with a space in every ``{{ctx.name}}``, so that `with_context` ignores it."""
    return _CONTEXT_NAME.sub(lambda found: neutralise(found[0]), text)


def with_context(text: str, names: Mapping[str, str], place: str) -> str:
    """Return `text` with every ``{{ctx.name}}`` replaced once; inserted values are not scanned.

    Raises: ConfigError if `names` lacks a name. The error message begins with `place`, and lists
    the existing names.
    """

    def value(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise ConfigError(
                f"{place} use {{{{ctx.{name}}}}}, which the workspace does not define "
                f"(it defines: {known})"
            )
        return names[name]

    return _CONTEXT_NAME.sub(value, text)
