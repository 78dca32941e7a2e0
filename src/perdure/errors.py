"""Every exception perdure raises; this module imports nothing.

    PerdureError                 code (stable), retryable, facts()
    ├ SessionError   EntryNotFound · AmbiguousId · InvalidEntry · InvalidParent · CorruptLog
    │                UnsupportedVersion · AlreadyAnswered
    ├ StoreError     SessionNotFound · SessionExists · HeadConflict · LeafConflict · LeaseHeld
    │                LeaseLost · TurnOpen · IdempotencyMismatch · StoreTooNew · NotAStore
    │                StoreCorrupt · StoreReadOnly · StoreFull · StoreUnavailable · Unsupported
    ├ ModelError     ModelUnavailable · RateLimited · ContextOverflow · ModelRefused
    │                MalformedResponse
    ├ ToolError      UnknownTool · InvalidArguments · ToolTimeout · ToolDenied
    ├ EngineError    InvalidTransition · TurnFailed · UnsafeReplay
    ├ FormatError    a file that cannot be imported, or a session that cannot be exported
    └ ConfigError

Each message is one sentence that says what to do; the facts it is made of are attributes, so
that callers branch on ``code`` and fields and never on text. Misuse of an API by its caller is
``TypeError`` or ``ValueError``, not one of these.
"""

from __future__ import annotations

from typing import ClassVar


class PerdureError(Exception):
    """Root of everything perdure raises.

    ``code`` is stable across releases. ``retryable`` says that the same call may succeed later
    without the caller changing anything.
    """

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def facts(self) -> dict[str, object]:
        """Name and value of every fact the error carries, for ``--json`` and logs."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


# ---------------------------------------------------------------- the log's content


class SessionError(PerdureError):
    """Something is wrong with an entry or with how entries hang together."""

    code = "session_error"


class EntryNotFound(SessionError):
    """No entry of that id is visible in the session."""

    code = "entry_not_found"

    def __init__(self, entry: str, stream: str) -> None:
        super().__init__(
            f"no entry {entry!r} in session {stream!r}; `perdure sessions tree {stream}` lists them"
        )
        self.entry = entry
        self.stream = stream


class AmbiguousId(SessionError):
    """A prefix fits several ids."""

    code = "ambiguous_id"

    def __init__(self, prefix: str, candidates: tuple[str, ...]) -> None:
        shown = ", ".join(candidates[:5])
        super().__init__(f"{prefix!r} fits several ids ({shown}); type more of it")
        self.prefix = prefix
        self.candidates = candidates


class InvalidEntry(SessionError):
    """An entry breaks a rule of the log; nothing was appended."""

    code = "invalid_entry"

    def __init__(self, reason: str) -> None:
        super().__init__(f"the entry cannot be appended: {reason}")
        self.reason = reason


class InvalidParent(SessionError):
    """A tree entry names a parent that no branch can grow from."""

    code = "invalid_parent"

    def __init__(self, parent: str, stream: str, reason: str) -> None:
        super().__init__(f"{parent!r} cannot be a parent in session {stream!r}: {reason}")
        self.parent = parent
        self.stream = stream
        self.reason = reason


class CorruptLog(SessionError):
    """The stored bytes of an entry are not what was committed."""

    code = "corrupt_log"

    def __init__(self, stream: str, seq: int, reason: str) -> None:
        super().__init__(
            f"entry {stream}/{seq} is damaged ({reason}); run `perdure store verify` for all faults"
        )
        self.stream = stream
        self.seq = seq
        self.reason = reason


class UnsupportedVersion(SessionError):
    """An entry of a known kind was written by a newer perdure."""

    code = "unsupported_version"

    def __init__(self, kind: str, version: int, supported: int) -> None:
        super().__init__(
            f"{kind!r} entries of version {version} need a newer perdure (this one reads up to "
            f"{supported}); upgrade perdure, the entry is kept as it is"
        )
        self.kind = kind
        self.version = version
        self.supported = supported


class AlreadyAnswered(SessionError):
    """Somebody answered the question first, and otherwise; their answer counts."""

    code = "already_answered"

    def __init__(self, question: str, choice: str, by: str) -> None:
        super().__init__(f"question {question} was answered {choice!r} by {by} before")
        self.question = question
        self.choice = choice
        self.by = by


# ---------------------------------------------------------------- stores


class StoreError(PerdureError):
    """The store refused a call or could not carry it out; nothing of the call was written."""

    code = "store_error"


class SessionNotFound(StoreError):
    """No such stream in this namespace."""

    code = "session_not_found"

    def __init__(self, stream: str) -> None:
        super().__init__(f"no session {stream!r} here; `perdure sessions list --all` shows them")
        self.stream = stream


class SessionExists(StoreError):
    """A stream of that id exists already."""

    code = "session_exists"

    def __init__(self, stream: str) -> None:
        super().__init__(f"a session {stream!r} exists already; open it, or choose another id")
        self.stream = stream


class HeadConflict(StoreError):
    """Another writer appended first."""

    code = "head_conflict"
    retryable = True

    def __init__(self, stream: str, expected: int, actual: int) -> None:
        super().__init__(
            f"session {stream!r} is at entry {actual}, not {expected}: read what was added and "
            "append again"
        )
        self.stream = stream
        self.expected = expected
        self.actual = actual


class LeafConflict(StoreError):
    """The conversation continues from another entry than the caller believed."""

    code = "leaf_conflict"
    retryable = True

    def __init__(self, stream: str, expected: str | None, actual: str | None) -> None:
        super().__init__(
            f"session {stream!r} continues from {actual or 'its root'}, not from "
            f"{expected or 'its root'}: look at the branch and append again"
        )
        self.stream = stream
        self.expected = expected
        self.actual = actual


class LeaseHeld(StoreError):
    """Somebody else holds the right to run turns in this session."""

    code = "lease_held"
    retryable = True

    def __init__(self, stream: str, owner: str, until: int) -> None:
        super().__init__(
            f"session {stream!r} is in use by {owner}; wait for its turn to end or stop it"
        )
        self.stream = stream
        self.owner = owner
        self.until = until


class LeaseLost(StoreError):
    """The caller's lease was taken over: its write was refused and nothing was written."""

    code = "lease_lost"

    def __init__(self, stream: str, epoch: int, current: int) -> None:
        super().__init__(
            f"this process no longer leads session {stream!r} (its epoch {epoch}, now {current}); "
            "open the session again"
        )
        self.stream = stream
        self.epoch = epoch
        self.current = current


class TurnOpen(StoreError):
    """The branch cannot be moved or closed while a turn is open on it."""

    code = "turn_open"

    def __init__(self, stream: str, turn_seq: int) -> None:
        super().__init__(
            f"a turn is open in session {stream!r}; let it finish, resume it with "
            f"`perdure chat --session {stream}`, or give it up with `perdure sessions abandon {stream}`"
        )
        self.stream = stream
        self.turn_seq = turn_seq


class IdempotencyMismatch(StoreError):
    """The key was used before for something else."""

    code = "idempotency_mismatch"

    def __init__(self, key: str) -> None:
        super().__init__(f"idempotency key {key!r} was used for another commit; use a new key")
        self.key = key


class StoreTooNew(StoreError):
    """The store was written by a newer perdure and was left untouched."""

    code = "store_too_new"

    def __init__(self, store: str, version: int, supported: int) -> None:
        super().__init__(
            f"{store} has schema {version}, this perdure knows up to {supported}; upgrade perdure "
            "(nothing was changed)"
        )
        self.store = store
        self.version = version
        self.supported = supported


class NotAStore(StoreError):
    """The file or address holds something that is not a perdure store; it was left untouched."""

    code = "not_a_store"

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(f"{store} is not a perdure store: {reason} (nothing was changed)")
        self.store = store
        self.reason = reason


class StoreCorrupt(StoreError):
    """The database itself is damaged; perdure stopped writing to it."""

    code = "store_corrupt"

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(
            f"{store} is damaged ({reason}); copy the file away, then run `perdure store verify`"
        )
        self.store = store
        self.reason = reason


class StoreReadOnly(StoreError):
    """The store cannot be written."""

    code = "store_read_only"

    def __init__(self, store: str) -> None:
        super().__init__(f"{store} cannot be written; check the permissions of file and folder")
        self.store = store


class StoreFull(StoreError):
    """No space is left; the commit was rolled back."""

    code = "store_full"
    retryable = True

    def __init__(self, store: str) -> None:
        super().__init__(f"no space left for {store}; free some and try again (nothing was lost)")
        self.store = store


class StoreUnavailable(StoreError):
    """The store cannot be reached or is closed; whether a commit under way landed is unknown."""

    code = "store_unavailable"
    retryable = True

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(f"{store} is not available: {reason}")
        self.store = store
        self.reason = reason


class Unsupported(StoreError):
    """This kind of store cannot do that at all (see ``stores.protocol.Capabilities``)."""

    code = "unsupported"

    def __init__(self, capability: str, backend: str) -> None:
        super().__init__(
            f"a {backend} store has no {capability.replace('_', ' ')}; keep what needs it in a store "
            "that has it, such as sqlite:///FILE"
        )
        self.capability = capability
        self.backend = backend


# ---------------------------------------------------------------- models


class ModelError(PerdureError):
    """A model call failed; the class says whether trying again can help."""

    code = "model_error"

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(f"{model}: {reason}")
        self.model = model
        self.reason = reason


class ModelUnavailable(ModelError):
    """Network, overload, 5xx or a cut stream: trying again may help."""

    code = "model_unavailable"
    retryable = True


class RateLimited(ModelError):
    """The provider asks to wait."""

    code = "rate_limited"
    retryable = True

    def __init__(self, model: str, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(model, reason)
        self.retry_after_s = retry_after_s


class ContextOverflow(ModelError):
    """The request is larger than the model's window."""

    code = "context_overflow"

    def __init__(
        self,
        model: str,
        reason: str,
        used_tokens: int | None = None,
        limit_tokens: int | None = None,
    ) -> None:
        super().__init__(model, reason)
        self.used_tokens = used_tokens
        self.limit_tokens = limit_tokens


class ModelRefused(ModelError):
    """The provider refuses the request as it stands (credentials, bad request, content filter)."""

    code = "model_refused"

    def __init__(self, model: str, reason: str, status: int | None = None) -> None:
        super().__init__(model, reason)
        self.status = status


class MalformedResponse(ModelError):
    """The provider's answer could not be understood."""

    code = "malformed_response"
    retryable = True


# ---------------------------------------------------------------- tools


class ToolError(PerdureError):
    """A tool could not do its work; it becomes a tool result, never an engine crash."""

    code = "tool_error"

    def __init__(self, tool: str, reason: str) -> None:
        super().__init__(f"{tool}: {reason}")
        self.tool = tool
        self.reason = reason


class UnknownTool(ToolError):
    """The model asked for a tool that this session does not have."""

    code = "unknown_tool"

    def __init__(self, tool: str, known: tuple[str, ...]) -> None:
        listed = ", ".join(known) or "none"
        super().__init__(tool, f"there is no such tool; available: {listed}")
        self.known = known


class InvalidArguments(ToolError):
    """The arguments do not fit the tool's schema."""

    code = "invalid_arguments"


class ToolTimeout(ToolError):
    """The tool took longer than it may."""

    code = "tool_timeout"

    def __init__(self, tool: str, limit_s: float) -> None:
        super().__init__(tool, f"no result within {limit_s:g} s")
        self.limit_s = limit_s


class ToolDenied(ToolError):
    """A rule forbids what the tool was asked to do."""

    code = "tool_denied"


# ---------------------------------------------------------------- engine, formats, configuration


class EngineError(PerdureError):
    """The turn engine cannot do what was asked in the state the session is in."""

    code = "engine_error"


class InvalidTransition(EngineError):
    """That input is not possible in this phase."""

    code = "invalid_transition"

    def __init__(self, phase: str, cause: str) -> None:
        super().__init__(f"{cause} is not possible while the turn is {phase}")
        self.phase = phase
        self.cause = cause


class TurnFailed(EngineError):
    """The turn ended without an answer; the log says why and the session goes on."""

    code = "turn_failed"

    def __init__(self, reason: str, failure: str) -> None:
        super().__init__(f"the turn failed ({failure}): {reason}")
        self.reason = reason
        self.failure = failure


class UnsafeReplay(EngineError):
    """Repeating the effect could do harm and nobody allowed it."""

    code = "unsafe_replay"

    def __init__(self, effect_id: str) -> None:
        super().__init__(f"effect {effect_id} may have happened; answer its question in the inbox")
        self.effect_id = effect_id


class FormatError(PerdureError):
    """A source cannot be imported, or a session cannot be written in a format."""

    code = "format_error"

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"{source}: {reason}")
        self.source = source
        self.reason = reason


class ConfigError(PerdureError):
    """The configuration or the arguments contradict each other or name something unknown."""

    code = "config_error"
