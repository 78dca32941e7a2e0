"""The data that an approval covers besides the call's arguments: facts, hashes, display."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from perdure.bounds.short_repr import ShortRepr
from perdure.errors import ToolError
from perdure.secrets.mask import MASK, mask_part, mask_secrets, masked_value
from perdure.secrets.shapes import is_secret_field
from perdure.session.messages import ToolCallPart

Decision = Literal["run", "ask", "refuse", "examine"]
"""The decision on a tool call. ``examine`` means: first read the data that an approval covers."""

MAX_ARGUMENT = 2000
HEAD = 1000

_HASH_BYTES = 32
_ID_CHARS = 8
_canonical = msgspec.json.Encoder(order="deterministic")


class Doubt(ShortRepr, frozen=True):
    """A problem with a working directory, about which a person must first decide in every mode.

    `text` is the question. `grant` is the permission that the answer "always" gives. The grant
    names the directory and all its problems, so perdure asks again if one of them changes.
    """

    text: str
    grant: str


class Bound(ShortRepr, frozen=True):
    """The data that an approval of a call covers, besides the call's arguments.

    Shape: `facts` are names and texts in display order. `always` is appended to the text of a
    grant, so that the grant names exactly what is allowed. If `always` is None, the answer "always"
    is not offered. `diff` is the change to a file. `problem` is the reason why the call cannot run;
    None if it can. If there is a `doubt`, a person must approve the call in every mode. `is_hidden`
    means that a name in the file's path starts with a dot; the call then requires approval even if
    the mode allows writes.
    """

    facts: Mapping[str, str] = {}
    always: str | None = ""
    diff: str | None = None
    problem: ToolError | None = None
    doubt: Doubt | None = None
    is_hidden: bool = False


class Ruling(msgspec.Struct, frozen=True):
    """The decision on a call, and its reason.

    `text` is the question for the person, or the refusal for the model. `grant` is the permission
    that the answer "always" would give for the rest of the session; None if there is no such
    answer. `error_code` is set for refusals. `action` and `preview` (path, command or host) are set
    for questions. `choices` are the possible answers if they differ from allow, deny and always.
    `free_in` are the consent modes of a flow in which perdure runs the call without asking. An
    approval is valid only for the call's arguments and the facts in `bound`. The decision
    ``examine`` means that `bound` is needed for the decision but was not given.
    """

    decision: Decision
    text: str = ""
    grant: str | None = None
    error_code: str | None = None
    action: str | None = None
    preview: str | None = None
    choices: tuple[str, ...] = ()
    free_in: tuple[str, ...] = ()
    bound: Bound | None = None


Judge = Callable[[ToolCallPart, frozenset[str], Bound | None], Ruling]
"""Decides whether a call may run. Pure.

The arguments are the call, the grants of the turn so far, and the data that an approval would cover
(None if the data was not read yet).
"""


def digest_of(args_hash: str | None, facts: Mapping[str, str] | None) -> str:
    """Return one hash of the data that an approval covers: the arguments' hash and the facts."""
    return hash_of(_canonical.encode((args_hash, dict(facts or {}))))


def hash_of(data: bytes) -> str:
    """Return the BLAKE2b-256 of `data`, as ``b2sum -l 256`` prints it."""
    return hashlib.blake2b(data, digest_size=_HASH_BYTES).hexdigest()


def content_fact(data: bytes) -> str:
    """Return the fact for the content `data`: its size and hash."""
    return f"{len(data)} bytes, blake2b-256 {hash_of(data)}"


# ---------------------------------------------------------------- displayed values


def shown_arguments(args: Mapping[str, object]) -> dict[str, object]:
    """Return `args` for display, with secrets masked and long values shortened.

    A long value is shown as its beginning, its size and its hash.
    """
    return {mask_secrets(name): _preview_value(name, value) for name, value in args.items()}


def _preview_value(name: str, value: object) -> object:
    text = value if isinstance(value, str) else _json(value)
    if len(text) <= MAX_ARGUMENT:
        try:
            return masked_value(value, name)
        except RecursionError:
            return mask_secrets(text)
    data = text.encode(errors="replace")
    # Masked before it is cut, because a secret may cross the end.
    begin = text[: 2 * HEAD]
    head = MASK if is_secret_field(name, begin) else mask_part(begin, 0, HEAD)
    return {"head": head, "bytes": len(data), "blake2b_256": hash_of(data)}


def _json(value: object) -> str:
    try:
        return _canonical.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        return "(cannot be shown)"


def grant_id(grant: str) -> str:
    """Return the id of a grant: the first characters of the digest of its text."""
    return hashlib.sha256(grant.encode()).hexdigest()[:_ID_CHARS]
