"""Keys that pi and Operator share, and the keys that perdure adds to files of both."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perdure.codecs.fields import Fields, counts_in, number_in, object_in, text_in
from perdure.session.codec import encode
from perdure.session.info import trim_title
from perdure.session.messages import MICROCENTS_PER_DOLLAR, Usage
from perdure.session.notes import SessionInfoChanged

ROOT = "root"
"""Written in place of an id in a branch summary that refers to no record."""

NO_MODEL = "unknown"
"""Name of the provider, or of the model, if it is unknown."""

OURS = "perdure."
"""Prefix of the type of perdure's ``custom`` records; an entry's kind, or ``key``, follows."""


def dollars(usage: Usage) -> float:
    """Return the cost of `usage` in dollars; 0 if the cost is unknown."""
    return (usage.cost_microcents or 0) / MICROCENTS_PER_DOLLAR


def microcents_in(cost: Fields) -> int | None:
    """Return the total of `cost`; None for 0, which both formats write if the cost is unknown."""
    total = number_in(cost, "total")
    if total is None or not 0 < total < 10**7:
        return None
    return round(total * MICROCENTS_PER_DOLLAR)


def usage_in(fields: Fields | None, tokens: Iterable[str]) -> Usage | None:
    """Return the usage in `fields`, with the counts of the keys `tokens`; None if all are zero."""
    if fields is None:
        return None
    counts = counts_in(fields, tokens)
    if not any(counts):
        return None
    return Usage(*counts, cost_microcents=microcents_in(object_in(fields, "cost") or {}))


def model_name(provider: str | None, model: str | None) -> str | None:
    """Return ``provider:model``, or only the part that is known; None if no part is known."""
    return ":".join(name for name in (provider, model) if name and name != NO_MODEL) or None


def provider_and_model(name: str | None) -> tuple[str, str]:
    """Return the provider and the name of the model `name`, as pi and Operator write them."""
    provider, colon, model = (name or "").partition(":")
    return (provider, model) if colon else (NO_MODEL, provider or NO_MODEL)


def title_in(fields: Fields) -> SessionInfoChanged:
    """Return the change that a ``session_info`` record makes: a new title, or none."""
    name = trim_title(text_in(fields, "name"))
    return SessionInfoChanged(title=name) if name else SessionInfoChanged()


META_FIELD = b'"meta":'
"""Start of the JSON field for the metadata that a source program added to a message."""


class _HasMeta(msgspec.Struct):
    meta: Fields | None = None


_has_meta = msgspec.json.Decoder(_HasMeta)


def with_meta(body: bytes, meta: Fields | None) -> bytes:
    """Return the JSON object `body` with the field ``meta``."""
    return body if meta is None else with_field(body, META_FIELD, meta)


def with_field(body: bytes, name: bytes, value: object) -> bytes:
    """Return the JSON object `body` with one more field at its end; `name` is already encoded."""
    comma = b"" if body == b"{}" else b","
    return body[:-1] + comma + name + encode(value) + b"}"


def meta_of(body: bytes) -> Fields:
    """Return the metadata that the source program added to the imported message `body`."""
    if META_FIELD not in body:
        return {}
    try:
        return _has_meta.decode(body).meta or {}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
