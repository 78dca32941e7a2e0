"""Mask all secrets in values that are displayed: events, errors and questions.

Only the displayed copies of values are masked; this module does not change stored values or values
sent to a model.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping
from typing import cast

from perdure.secrets.shapes import finds, is_secret_field

MASK = "[redacted]"


def mask_secrets(text: str) -> str:
    """Return `text` with `MASK` in place of everything that looks like a secret."""
    return mask_part(text, 0, len(text))


def mask_start(text: str, most: int) -> str:
    """Return the first `most` characters of `text`, masked.

    A word that is cut is dropped, unless it is the only one, because part of a key does not look
    like a secret.
    """
    start, after = text[:most], text[most : most + 1]
    if after and not after.isspace() and not start[-1].isspace():
        start = start.rsplit(None, 1)[0]
    return mask_secrets(start)


def mask_part(text: str, first: int, last: int) -> str:
    """Return the characters `first` to `last` of `text`, with `MASK` in place of secrets."""
    spans = sorted((find.start, find.end) for find in finds(text))
    pieces: list[str] = []
    at = first
    for start, end in spans:
        if end <= at or start >= last:
            continue
        pieces += (text[at : max(start, at)], MASK if start >= at or at == first else "")
        at = end
    return "".join((*pieces, text[at:last]))


def log_failure(
    log: logging.Logger,
    error: BaseException,
    message: str,
    *args: object,
    level: int = logging.ERROR,
    scrub: Callable[[str], str] = str,
) -> None:
    """Log `message` with the traceback of `error`; mask every secret in the traceback.

    The exceptions of a client, hook, tool or observer may contain a key. `scrub` removes secrets
    that have no recognizable form.
    """
    if log.isEnabledFor(level):
        raised = "".join(traceback.format_exception(error)).rstrip()
        log.log(level, "%s\n%s", message % args, scrub(mask_secrets(raised)))


def masked_value(value: object, name: str = "") -> object:
    """Return JSON data with every secret masked, also in field names.

    `name` is the name of the field that contains `value`.
    """
    if isinstance(value, str):
        if is_secret_field(name, value):
            return MASK
        return mask_secrets(value)
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        return {mask_secrets(key): masked_value(below, key) for key, below in fields.items()}
    if isinstance(value, list | tuple):
        return [masked_value(below, name) for below in cast("list[object]", value)]
    return value
