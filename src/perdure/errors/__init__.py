"""Every exception perdure raises; this package imports nothing of perdure.

    PerdureError                 code (stable), retryable, facts()
    ├ SessionError   EntryNotFound · AmbiguousId · InvalidEntry · InvalidParent · CorruptLog
    │                UnsupportedVersion · AlreadyAnswered · QuestionNotFound · QuestionClosed
    │                Erased · FactNotFound
    ├ StoreError     SessionNotFound · NotImported · SessionExists · HeadConflict · LeafConflict
    │                LeaseHeld · LeaseLost · TurnOpen · IdempotencyMismatch · StoreTooNew
    │                NotAStore
    │                StoreCorrupt · StoreSchemaForeign · StoreReadOnly · StoreFull
    │                StoreUnavailable · Unsupported
    │                InvalidQuery · SearchIndexDamaged · SessionHasForks · QuotaExceeded
    │                KeyMissing · KeyWrong · StoreNotEncrypted · StoreInUse
    │                CopyConflict · BackupDamaged · StoreExists · FlowNotFound · FlowExists
    ├ ModelError     ModelUnavailable · RateLimited · ContextOverflow · ModelRefused
    │                CredentialsRefused · MediaMissing · MalformedResponse
    ├ ToolError      UnknownTool · InvalidArguments · ToolTimeout · ToolDenied · ToolUnavailable
    │                ToolLost · ApprovalStale
    ├ McpUnavailable
    ├ EgressError    EgressDenied
    ├ EngineError    InvalidTransition · TurnFailed · TurnSuspended · Waiting
    │                HookBlocked · FlowRefusal
    ├ FormatError    InvalidWorkflow · a file or a session that cannot be read or written
    ├ ConfigError    SecretMissing · SecretPasted · InvalidAgentFile · InvalidSettings
    │                LimitExceeded
    ├ PathExists
    ├ NotAsyncio  no event loop of asyncio runs; a RuntimeError, too
    └ WrongArgument  is a TypeError and a ValueError, too

Each message is one sentence that says what to do; its facts are attributes, so that callers branch
on ``code`` and fields and never on text. An argument that a function does not accept raises
`WrongArgument`, or a plain ``ValueError``.
"""

from __future__ import annotations

from perdure.errors.engine import (
    ConfigError,
    EngineError,
    FormatError,
    HookBlocked,
    InvalidTransition,
    PathExists,
    TurnFailed,
    TurnSuspended,
    Waiting,
)
from perdure.errors.flows import FlowExists, FlowNotFound, FlowRefusal
from perdure.errors.log import (
    AlreadyAnswered,
    AmbiguousId,
    CorruptLog,
    EntryNotFound,
    FactNotFound,
    InvalidEntry,
    InvalidParent,
    QuestionClosed,
    QuestionNotFound,
    SessionError,
    UnsupportedVersion,
)
from perdure.errors.maintenance import BackupDamaged, CopyConflict, StoreExists
from perdure.errors.models import (
    ContextOverflow,
    CredentialsRefused,
    MalformedResponse,
    MediaMissing,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
)
from perdure.errors.outside import EgressDenied, EgressError, SecretMissing, SecretPasted
from perdure.errors.retention import Erased, QuotaExceeded, SessionHasForks
from perdure.errors.root import PerdureError
from perdure.errors.stores import (
    HeadConflict,
    IdempotencyMismatch,
    InvalidQuery,
    KeyMissing,
    KeyWrong,
    LeafConflict,
    LeaseHeld,
    LeaseLost,
    NotAStore,
    NotImported,
    SearchIndexDamaged,
    SessionExists,
    SessionNotFound,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreInUse,
    StoreNotEncrypted,
    StoreReadOnly,
    StoreSchemaForeign,
    StoreTooNew,
    StoreTooOld,
    StoreUnavailable,
    TurnOpen,
    Unsupported,
)
from perdure.errors.tools import (
    ApprovalStale,
    InvalidArguments,
    McpUnavailable,
    ToolDenied,
    ToolError,
    ToolLost,
    ToolTimeout,
    ToolUnavailable,
    UnknownTool,
)
from perdure.errors.usage import LimitExceeded, NotAsyncio, WrongArgument
from perdure.errors.workflow import InvalidAgentFile, InvalidSettings, InvalidWorkflow

__all__ = [
    "AlreadyAnswered",
    "AmbiguousId",
    "ApprovalStale",
    "BackupDamaged",
    "ConfigError",
    "ContextOverflow",
    "CopyConflict",
    "CorruptLog",
    "CredentialsRefused",
    "EgressDenied",
    "EgressError",
    "EngineError",
    "EntryNotFound",
    "Erased",
    "FactNotFound",
    "FlowExists",
    "FlowNotFound",
    "FlowRefusal",
    "FormatError",
    "HeadConflict",
    "HookBlocked",
    "IdempotencyMismatch",
    "InvalidAgentFile",
    "InvalidArguments",
    "InvalidEntry",
    "InvalidParent",
    "InvalidQuery",
    "InvalidSettings",
    "InvalidTransition",
    "InvalidWorkflow",
    "KeyMissing",
    "KeyWrong",
    "LeafConflict",
    "LeaseHeld",
    "LeaseLost",
    "LimitExceeded",
    "MalformedResponse",
    "McpUnavailable",
    "MediaMissing",
    "ModelError",
    "ModelRefused",
    "ModelUnavailable",
    "NotAStore",
    "NotAsyncio",
    "NotImported",
    "PathExists",
    "PerdureError",
    "QuestionClosed",
    "QuestionNotFound",
    "QuotaExceeded",
    "RateLimited",
    "SearchIndexDamaged",
    "SecretMissing",
    "SecretPasted",
    "SessionError",
    "SessionExists",
    "SessionHasForks",
    "SessionNotFound",
    "StoreCorrupt",
    "StoreError",
    "StoreExists",
    "StoreFull",
    "StoreInUse",
    "StoreNotEncrypted",
    "StoreReadOnly",
    "StoreSchemaForeign",
    "StoreTooNew",
    "StoreTooOld",
    "StoreUnavailable",
    "ToolDenied",
    "ToolError",
    "ToolLost",
    "ToolTimeout",
    "ToolUnavailable",
    "TurnFailed",
    "TurnOpen",
    "TurnSuspended",
    "UnknownTool",
    "Unsupported",
    "UnsupportedVersion",
    "Waiting",
    "WrongArgument",
]
