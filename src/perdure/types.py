"""`perdure.types`: types of arguments and return values, for annotations.

The most common names are in `perdure` itself; handles without async are in `perdure.blocking`.
"""

from __future__ import annotations

from perdure.client.conversation.append import ExpectedLeaf, Item, Parent
from perdure.client.flows.deletion import DeletedFlow
from perdure.client.open import StoreOpening
from perdure.client.reads import EntryRef
from perdure.context.compaction import LeftContext
from perdure.context.emission import ContextMessage
from perdure.egress.destinations import Destination
from perdure.engine.hooks.registry import Registered
from perdure.engine.turns.environment import SilenceLimits
from perdure.events.cursor import Cursor
from perdure.events.types import AnyEvent
from perdure.interop.reports import (
    Dialect,
    Exported,
    ExportedFile,
    ExportFormat,
    FileOutcome,
    ImportedFiles,
    ImportReport,
    Redaction,
)
from perdure.memory.hits import Why
from perdure.memory.scope import ScopeName
from perdure.models.retry import RetryPolicy
from perdure.secrets.vault import Taint
from perdure.session.codec import Unknown
from perdure.session.flows.kinds import (
    DocumentBound,
    HandoffTarget,
    Offers,
    RepairAsked,
    SelectorOpened,
)
from perdure.session.flows.run import (
    Asked,
    AwaitingHuman,
    CommandGrant,
    CommandGrants,
    ConsentState,
    Declined,
    HumanInput,
    ImprovementPhase,
    ToolGrant,
    ToolGrants,
)
from perdure.session.info import Origin, Status
from perdure.session.kinds import TreeBody
from perdure.session.ledger import Delegated, Spending
from perdure.session.memory.facts import FactVersion
from perdure.session.memory.kinds import EpisodeEnd, SaidBy
from perdure.session.messages import UnknownPart
from perdure.session.notes import Question, SideBody
from perdure.session.records import ActivityGroup, UsageGroup
from perdure.session.search.values import SearchRole
from perdure.stores.protocol import Capabilities, Problem, StoreInfo, Verification
from perdure.stores.retention.erase import Certificate, Copy, Counts, ErasedSession, ForkPolicy
from perdure.tools.approval import Bound, Doubt
from perdure.tools.decorator import Declares, FunctionTool
from perdure.tools.registry import Declaration, ToolRegistry
from perdure.tools.spec import Subject

__all__ = [
    "ActivityGroup",
    "AnyEvent",
    "Asked",
    "AwaitingHuman",
    "Bound",
    "Capabilities",
    "Certificate",
    "CommandGrant",
    "CommandGrants",
    "ConsentState",
    "ContextMessage",
    "Copy",
    "Counts",
    "Cursor",
    "Declaration",
    "Declares",
    "Declined",
    "Delegated",
    "DeletedFlow",
    "Destination",
    "Dialect",
    "DocumentBound",
    "Doubt",
    "EntryRef",
    "EpisodeEnd",
    "ErasedSession",
    "ExpectedLeaf",
    "ExportFormat",
    "Exported",
    "ExportedFile",
    "FactVersion",
    "FileOutcome",
    "ForkPolicy",
    "FunctionTool",
    "HandoffTarget",
    "HumanInput",
    "ImportReport",
    "ImportedFiles",
    "ImprovementPhase",
    "Item",
    "LeftContext",
    "Offers",
    "Origin",
    "Parent",
    "Problem",
    "Question",
    "Redaction",
    "Registered",
    "RepairAsked",
    "RetryPolicy",
    "SaidBy",
    "ScopeName",
    "SearchRole",
    "SelectorOpened",
    "SideBody",
    "SilenceLimits",
    "Spending",
    "Status",
    "StoreInfo",
    "StoreOpening",
    "Subject",
    "Taint",
    "ToolGrant",
    "ToolGrants",
    "ToolRegistry",
    "TreeBody",
    "Unknown",
    "UnknownPart",
    "UsageGroup",
    "Verification",
    "Why",
]
