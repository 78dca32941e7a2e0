"""What an approval is bound to besides the arguments: files, folders, the agent's permissions.

The facts are read when a person is asked, when the answer arrives, and again immediately before
the call runs. If they differ, the call is asked again.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping

import msgspec

from perdure.errors import ApprovalStale, ToolError
from perdure.secrets.masking import masked, masked_value
from perdure.tools.judging import effective_args
from perdure.tools.spec import Bound, ToolCall, ToolSpec

MAX_HASHED_BYTES = 16 * 1024 * 1024
"""A larger file is bound by its size, inode and times instead of its content."""

MAX_ARGUMENT = 2000
HEAD = 1000

_HASH_BYTES = 32
_canonical = msgspec.json.Encoder(order="deterministic")


def bound_of(spec: ToolSpec, call: ToolCall, agent: str) -> Bound:
    """What an approval of `call` is bound to now; a call that cannot run has a `problem`."""
    args = effective_args(spec, call.args)
    try:
        if spec.arguments is not None:
            args = spec.arguments(args)
        own = Bound() if spec.bind is None else spec.bind(msgspec.structs.replace(call, args=args))
    except ToolError as error:
        return Bound(problem=error)
    rules = (call.permissions, spec.name, spec.parameters, spec.action, spec.effect, spec.is_gated)
    facts = {**own.facts, "agent": agent, "permissions": hash_of(_canonical.encode(rules))}
    return msgspec.structs.replace(own, facts=facts)


def digest_of(args_hash: str | None, facts: Mapping[str, str] | None) -> str:
    """One hash over everything that an approval is bound to."""
    return hash_of(_canonical.encode((args_hash, dict(facts or {}))))


def require_unchanged(
    spec: ToolSpec, call: ToolCall, agent: str, args_hash: str, digest: str
) -> Bound:
    """What an approval of `call` is bound to, which is still what `digest` says.

    Raises: ApprovalStale; ToolError when the call cannot run any more.
    """
    now = bound_of(spec, call, agent)
    if now.problem is not None:
        raise now.problem
    if digest_of(args_hash, now.facts) != digest:
        raise ApprovalStale(spec.name)
    return now


# ---------------------------------------------------------------- hashes


def hash_of(data: bytes) -> str:
    """BLAKE2b-256 of `data`, as ``b2sum -l 256`` prints it."""
    return hashlib.blake2b(data, digest_size=_HASH_BYTES).hexdigest()


def content_fact(data: bytes) -> str:
    """`data` as a fact: its size and hash."""
    return f"{len(data)} bytes, blake2b-256 {hash_of(data)}"


def file_fact(descriptor: int) -> tuple[str, bytes | None]:
    """An open regular file as a fact, and the content it is about.

    A large file is described by its size, inode and times, and its content is None.
    Raises: OSError.
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
    times = f"modified {found.st_mtime_ns} ns, changed {found.st_ctime_ns} ns"
    return f"{found.st_size} bytes, inode {found.st_ino}, {times}", None


def folder_fact(path: str, descriptor: int) -> str:
    """A folder as a fact: where it is, and which one it is."""
    return f"{path or '/'} (inode {os.fstat(descriptor).st_ino})"


# ---------------------------------------------------------------- what a person is shown


def shown_arguments(args: Mapping[str, object]) -> dict[str, object]:
    """`args` for a person: secrets masked, a long value as its beginning, size and hash."""
    return {masked(name): _shown(name, value) for name, value in args.items()}


def _shown(name: str, value: object) -> object:
    text = value if isinstance(value, str) else _json(value)
    if len(text) <= MAX_ARGUMENT:
        return masked_value(value, name)
    data = text.encode(errors="replace")
    return {"head": masked(text[:HEAD]), "bytes": len(data), "blake2b_256": hash_of(data)}


def _json(value: object) -> str:
    try:
        return _canonical.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        return repr(value)
