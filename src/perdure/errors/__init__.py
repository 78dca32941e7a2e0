"""Every exception that perdure raises; this package imports no other package of perdure.

    PerdureError                 code (stable), retryable, facts()
    ├ SessionError   EntryNotFound · AmbiguousId · InvalidEntry · InvalidParent · CorruptLog
    │                UnsupportedVersion · AlreadyAnswered · QuestionNotFound · QuestionClosed
    │                Erased · ContentNotFound · FactNotFound
    ├ StoreError     SessionNotFound · NotImported · SessionExists · HeadConflict · LeafConflict
    │                LeaseHeld · LeaseLost · TurnOpen · IdempotencyMismatch · StoreTooNew
    │                NotAStore
    │                StoreCorrupt · StoreSchemaForeign · StoreReadOnly · StoreFull
    │                StoreUnavailable · StoreLocked · StoreBehind · Unsupported
    │                InvalidQuery · SearchIndexDamaged · SessionHasForks · QuotaExceeded
    │                KeyMissing · KeyWrong · StoreNotEncrypted · StoreInUse
    │                CopyConflict · BackupDamaged · StoreExists · FlowNotFound · FlowExists
    ├ ModelError     ModelUnavailable · RateLimited · ContextOverflow · ModelRefused
    │                CredentialsRefused · MediaMissing · MalformedResponse · EmbedderUnavailable ·
    │                SummaryTooShort · SummaryOverBudget
    ├ ToolError      UnknownTool · InvalidArguments · ToolTimeout · ToolDenied · ToolUnavailable
    │                ToolLost · ApprovalStale
    ├ McpUnavailable
    ├ EgressError    EgressDenied
    ├ EngineError    InvalidTransition · RequestAnswered · TurnFailed · TurnSuspended
    │                Waiting · QueueFull · HookBlocked · FlowRefusal
    ├ FormatError    InvalidWorkflow · UnknownFormat · a file that cannot be read or written
    ├ ConfigError    SecretMissing · SecretPasted · InvalidAgentFile · InvalidSettings
    │                LimitExceeded · AgentNotFound
    ├ PathExists
    ├ NotAsyncio  no event loop of asyncio runs; a RuntimeError, too
    └ WrongArgument  is a TypeError and a ValueError, too

Each error message is one sentence that says what to do. The facts of an error are attributes: to
distinguish errors, compare ``code`` and the attributes, never the message. An argument that a
function does not accept raises `WrongArgument`, or a plain ``ValueError``.
"""

from __future__ import annotations

from perdure.errors.engine import AgentNotFound as AgentNotFound
from perdure.errors.engine import ConfigError as ConfigError
from perdure.errors.engine import EngineError as EngineError
from perdure.errors.engine import FormatError as FormatError
from perdure.errors.engine import HookBlocked as HookBlocked
from perdure.errors.engine import InvalidTransition as InvalidTransition
from perdure.errors.engine import PathExists as PathExists
from perdure.errors.engine import QueueFull as QueueFull
from perdure.errors.engine import RequestAnswered as RequestAnswered
from perdure.errors.engine import TurnFailed as TurnFailed
from perdure.errors.engine import TurnFailure as TurnFailure
from perdure.errors.engine import TurnSuspended as TurnSuspended
from perdure.errors.engine import UnknownFormat as UnknownFormat
from perdure.errors.engine import Waiting as Waiting
from perdure.errors.flows import FlowExists as FlowExists
from perdure.errors.flows import FlowNotFound as FlowNotFound
from perdure.errors.flows import FlowRefusal as FlowRefusal
from perdure.errors.log import AlreadyAnswered as AlreadyAnswered
from perdure.errors.log import AmbiguousId as AmbiguousId
from perdure.errors.log import ContentNotFound as ContentNotFound
from perdure.errors.log import CorruptLog as CorruptLog
from perdure.errors.log import EntryNotFound as EntryNotFound
from perdure.errors.log import FactNotFound as FactNotFound
from perdure.errors.log import InvalidEntry as InvalidEntry
from perdure.errors.log import InvalidParent as InvalidParent
from perdure.errors.log import QuestionClosed as QuestionClosed
from perdure.errors.log import QuestionNotFound as QuestionNotFound
from perdure.errors.log import SessionError as SessionError
from perdure.errors.log import UnsupportedVersion as UnsupportedVersion
from perdure.errors.maintenance import BackupDamaged as BackupDamaged
from perdure.errors.maintenance import CopyConflict as CopyConflict
from perdure.errors.maintenance import StoreExists as StoreExists
from perdure.errors.models import ContextOverflow as ContextOverflow
from perdure.errors.models import CredentialsRefused as CredentialsRefused
from perdure.errors.models import EmbedderUnavailable as EmbedderUnavailable
from perdure.errors.models import MalformedResponse as MalformedResponse
from perdure.errors.models import MediaMissing as MediaMissing
from perdure.errors.models import ModelError as ModelError
from perdure.errors.models import ModelRefused as ModelRefused
from perdure.errors.models import ModelUnavailable as ModelUnavailable
from perdure.errors.models import RateLimited as RateLimited
from perdure.errors.models import SummaryOverBudget as SummaryOverBudget
from perdure.errors.models import SummaryTooShort as SummaryTooShort
from perdure.errors.outside import EgressDenied as EgressDenied
from perdure.errors.outside import EgressError as EgressError
from perdure.errors.outside import SecretMissing as SecretMissing
from perdure.errors.outside import SecretPasted as SecretPasted
from perdure.errors.retention import Erased as Erased
from perdure.errors.retention import QuotaExceeded as QuotaExceeded
from perdure.errors.retention import SessionHasForks as SessionHasForks
from perdure.errors.root import PerdureError as PerdureError
from perdure.errors.stores import HeadConflict as HeadConflict
from perdure.errors.stores import IdempotencyMismatch as IdempotencyMismatch
from perdure.errors.stores import InvalidQuery as InvalidQuery
from perdure.errors.stores import KeyMissing as KeyMissing
from perdure.errors.stores import KeyWrong as KeyWrong
from perdure.errors.stores import LeafConflict as LeafConflict
from perdure.errors.stores import LeaseHeld as LeaseHeld
from perdure.errors.stores import LeaseLost as LeaseLost
from perdure.errors.stores import NotAStore as NotAStore
from perdure.errors.stores import NotImported as NotImported
from perdure.errors.stores import SearchIndexDamaged as SearchIndexDamaged
from perdure.errors.stores import SessionExists as SessionExists
from perdure.errors.stores import SessionNotFound as SessionNotFound
from perdure.errors.stores import StoreBehind as StoreBehind
from perdure.errors.stores import StoreCorrupt as StoreCorrupt
from perdure.errors.stores import StoreError as StoreError
from perdure.errors.stores import StoreFull as StoreFull
from perdure.errors.stores import StoreInUse as StoreInUse
from perdure.errors.stores import StoreLocked as StoreLocked
from perdure.errors.stores import StoreNotEncrypted as StoreNotEncrypted
from perdure.errors.stores import StoreReadOnly as StoreReadOnly
from perdure.errors.stores import StoreSchemaForeign as StoreSchemaForeign
from perdure.errors.stores import StoreTooNew as StoreTooNew
from perdure.errors.stores import StoreTooOld as StoreTooOld
from perdure.errors.stores import StoreUnavailable as StoreUnavailable
from perdure.errors.stores import TurnOpen as TurnOpen
from perdure.errors.stores import Unsupported as Unsupported
from perdure.errors.tools import ApprovalStale as ApprovalStale
from perdure.errors.tools import InvalidArguments as InvalidArguments
from perdure.errors.tools import McpUnavailable as McpUnavailable
from perdure.errors.tools import ToolDenied as ToolDenied
from perdure.errors.tools import ToolError as ToolError
from perdure.errors.tools import ToolLost as ToolLost
from perdure.errors.tools import ToolTimeout as ToolTimeout
from perdure.errors.tools import ToolUnavailable as ToolUnavailable
from perdure.errors.tools import UnknownTool as UnknownTool
from perdure.errors.usage import LimitExceeded as LimitExceeded
from perdure.errors.usage import NotAsyncio as NotAsyncio
from perdure.errors.usage import WrongArgument as WrongArgument
from perdure.errors.workflow import InvalidAgentFile as InvalidAgentFile
from perdure.errors.workflow import InvalidSettings as InvalidSettings
from perdure.errors.workflow import InvalidWorkflow as InvalidWorkflow
