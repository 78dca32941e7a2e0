"""The facts that an approval covers besides the arguments: files, folders, permissions.

The facts are read when perdure asks a person, when the answer arrives, and again immediately before
the call runs. If the facts differ, perdure asks the person again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

import msgspec

from perdure.errors import ApprovalStale, ToolError
from perdure.secrets.mask import mask_secrets
from perdure.tools.approval import Bound, content_fact, digest_of, hash_of
from perdure.tools.permission_check import effective_args
from perdure.tools.spec import ToolCall, ToolSpec

RULES = frozenset(("agent", "permissions"))
"""Names of the facts that every approval has; each tool adds its own facts."""

MAX_HASHED_BYTES = 16 * 1024 * 1024
"""A larger file is identified by its size, inode and times instead of its content."""

_canonical = msgspec.json.Encoder(order="deterministic")


def bound_of(spec: ToolSpec, call: ToolCall, agent: str) -> Bound:
    """Return the current facts for an approval of `call`, with a `problem` if it cannot run."""
    args = effective_args(spec, call.args)
    try:
        if spec.arguments is not None:
            args = spec.arguments(args)
        own = Bound() if spec.bind is None else spec.bind(msgspec.structs.replace(call, args=args))
    except ToolError as error:
        return Bound(problem=error)
    rules = (call.permissions, spec.name, spec.parameters, spec.action, spec.effect, spec.is_gated)
    facts = {
        **shown_facts(own.facts),
        "agent": agent,
        "permissions": hash_of(_canonical.encode(rules)),
    }
    always = None if own.always is None else _utf8(own.always)
    return msgspec.structs.replace(own, facts=facts, always=always)


def shown_facts(facts: Mapping[str, str]) -> dict[str, str]:
    """Return `facts` in UTF-8, with masked secrets.

    A fact with a masked secret ends with the hash of its unmasked text.
    """
    return {_mask_fact(name): _mask_fact(fact) for name, fact in facts.items()}


def _mask_fact(text: str) -> str:
    text = _utf8(text)
    shown = mask_secrets(text)
    return text if shown == text else f"{shown} (blake2b-256 {hash_of(text.encode())})"


def _utf8(text: str) -> str:
    """Return `text` with an escape for each byte of a file name that is not UTF-8."""
    return text.encode(errors="backslashreplace").decode()


def require_unchanged(
    spec: ToolSpec, call: ToolCall, agent: str, args_hash: str, digest: str
) -> Bound:
    """Return the current facts for an approval of `call`, if they still match `digest`.

    Raises: ApprovalStale if a fact has changed since the approval. Raises ToolError if the call can
    no longer run.
    """
    now = bound_of(spec, call, agent)
    if now.problem is not None:
        raise now.problem
    if digest_of(args_hash, now.facts) != digest:
        raise ApprovalStale(spec.name)
    return now


# ---------------------------------------------------------------- hashes


def file_fact(descriptor: int) -> tuple[str, bytes | None]:
    """Return the fact for an open regular file (its size and hash), and the content of the file.

    If the file is large, the fact contains its size, inode and times instead of the hash, and the
    returned content is None.
    Raises: OSError if the file cannot be read.
    """
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        return "not a regular file", None
    if found.st_size <= MAX_HASHED_BYTES:
        with os.fdopen(os.dup(descriptor), "rb") as file:
            file.seek(0)
            content = file.read(MAX_HASHED_BYTES + 1)
        if len(content) <= MAX_HASHED_BYTES:
            return content_fact(content), content
    return times_fact(found), None


def times_fact(found: os.stat_result) -> str:
    """Return the fact for a file whose content is not read: its size, inode and times."""
    times = f"modified {found.st_mtime_ns} ns, changed {found.st_ctime_ns} ns"
    return f"{found.st_size} bytes, inode {found.st_ino}, {times}"


def folder_fact(path: str, descriptor: int) -> str:
    """Return the fact for an open folder: its path and inode."""
    return f"{path or '/'} (inode {os.fstat(descriptor).st_ino})"
