"""perdure: durable sessions for AI agents, stored in one append-only log.

    async with perdure.open("sqlite:///agents.db") as store:
        session = await store.create(title="Trip")
        await session.append(perdure.user("Hello"))

Each name is imported at its first use (PEP 562): ``import perdure`` imports nothing else, and a
program only imports what it uses. ``perdure.blocking`` has the same calls without async.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure import blocking as blocking
    from perdure import errors as errors
    from perdure import testing as testing
    from perdure import types as types
    from perdure.bounds.limits import InputLimits as InputLimits
    from perdure.bounds.limits import use_input_limits as use_input_limits
    from perdure.client.agents.agent import Agent as Agent
    from perdure.client.agents.agent import Fallback as Fallback
    from perdure.client.agents.chat import Chat as Chat
    from perdure.client.agents.files.lookup import load_agents as load_agents
    from perdure.client.agents.files.reader import agent_of_text as agent_of_text
    from perdure.client.agents.files.writer import agent_text as agent_text
    from perdure.client.agents.runtime import Runtime as Runtime
    from perdure.client.agents.session_usage import SessionUsage as SessionUsage
    from perdure.client.agents.session_usage import revoke as revoke
    from perdure.client.agents.session_usage import standing_of as standing_of
    from perdure.client.agents.turn import Reply as Reply
    from perdure.client.agents.turn import Turn as Turn
    from perdure.client.conversation.append import Appended as Appended
    from perdure.client.conversation.append import AppendOptions as AppendOptions
    from perdure.client.conversation.append import CommittedSessions as CommittedSessions
    from perdure.client.conversation.workspace import Selection as Selection
    from perdure.client.conversation.workspace import Workspace as Workspace
    from perdure.client.flows.feeds import RoleFeed as RoleFeed
    from perdure.client.flows.flow import Flow as Flow
    from perdure.client.flows.flows import Flows as Flows
    from perdure.client.open import open as open
    from perdure.client.reads import OpenQuestion as OpenQuestion
    from perdure.client.session import Session as Session
    from perdure.client.store import Store as Store
    from perdure.client.watch import Watch as Watch
    from perdure.context.build import Context as Context
    from perdure.engine.flows.rules.pending import FlowWait as FlowWait
    from perdure.engine.hooks.points import Block as Block
    from perdure.engine.hooks.registry import Hooks as Hooks
    from perdure.engine.turns.config import Budget as Budget
    from perdure.engine.turns.config import CompactionSettings as CompactionSettings
    from perdure.engine.turns.config import Limits as Limits
    from perdure.errors import AlreadyAnswered as AlreadyAnswered
    from perdure.errors import AmbiguousId as AmbiguousId
    from perdure.errors import ApprovalStale as ApprovalStale
    from perdure.errors import BackupDamaged as BackupDamaged
    from perdure.errors import ConfigError as ConfigError
    from perdure.errors import ContextOverflow as ContextOverflow
    from perdure.errors import CopyConflict as CopyConflict
    from perdure.errors import CorruptLog as CorruptLog
    from perdure.errors import CredentialsRefused as CredentialsRefused
    from perdure.errors import EgressDenied as EgressDenied
    from perdure.errors import EgressError as EgressError
    from perdure.errors import EngineError as EngineError
    from perdure.errors import EntryNotFound as EntryNotFound
    from perdure.errors import Erased as Erased
    from perdure.errors import FlowExists as FlowExists
    from perdure.errors import FlowNotFound as FlowNotFound
    from perdure.errors import FlowRefusal as FlowRefusal
    from perdure.errors import FormatError as FormatError
    from perdure.errors import HeadConflict as HeadConflict
    from perdure.errors import HookBlocked as HookBlocked
    from perdure.errors import IdempotencyMismatch as IdempotencyMismatch
    from perdure.errors import InvalidAgentFile as InvalidAgentFile
    from perdure.errors import InvalidArguments as InvalidArguments
    from perdure.errors import InvalidEntry as InvalidEntry
    from perdure.errors import InvalidParent as InvalidParent
    from perdure.errors import InvalidQuery as InvalidQuery
    from perdure.errors import InvalidSettings as InvalidSettings
    from perdure.errors import InvalidTransition as InvalidTransition
    from perdure.errors import InvalidWorkflow as InvalidWorkflow
    from perdure.errors import KeyMissing as KeyMissing
    from perdure.errors import KeyWrong as KeyWrong
    from perdure.errors import LeafConflict as LeafConflict
    from perdure.errors import LeaseHeld as LeaseHeld
    from perdure.errors import LeaseLost as LeaseLost
    from perdure.errors import LimitExceeded as LimitExceeded
    from perdure.errors import MalformedResponse as MalformedResponse
    from perdure.errors import McpUnavailable as McpUnavailable
    from perdure.errors import MediaMissing as MediaMissing
    from perdure.errors import ModelError as ModelError
    from perdure.errors import ModelRefused as ModelRefused
    from perdure.errors import ModelUnavailable as ModelUnavailable
    from perdure.errors import NotAStore as NotAStore
    from perdure.errors import NotAsyncio as NotAsyncio
    from perdure.errors import NotImported as NotImported
    from perdure.errors import PathExists as PathExists
    from perdure.errors import PerdureError as PerdureError
    from perdure.errors import QuestionClosed as QuestionClosed
    from perdure.errors import QuestionNotFound as QuestionNotFound
    from perdure.errors import QuotaExceeded as QuotaExceeded
    from perdure.errors import RateLimited as RateLimited
    from perdure.errors import SearchIndexDamaged as SearchIndexDamaged
    from perdure.errors import SecretMissing as SecretMissing
    from perdure.errors import SecretPasted as SecretPasted
    from perdure.errors import SessionError as SessionError
    from perdure.errors import SessionExists as SessionExists
    from perdure.errors import SessionHasForks as SessionHasForks
    from perdure.errors import SessionNotFound as SessionNotFound
    from perdure.errors import StoreCorrupt as StoreCorrupt
    from perdure.errors import StoreError as StoreError
    from perdure.errors import StoreExists as StoreExists
    from perdure.errors import StoreFull as StoreFull
    from perdure.errors import StoreInUse as StoreInUse
    from perdure.errors import StoreNotEncrypted as StoreNotEncrypted
    from perdure.errors import StoreReadOnly as StoreReadOnly
    from perdure.errors import StoreSchemaForeign as StoreSchemaForeign
    from perdure.errors import StoreTooNew as StoreTooNew
    from perdure.errors import StoreTooOld as StoreTooOld
    from perdure.errors import StoreUnavailable as StoreUnavailable
    from perdure.errors import ToolDenied as ToolDenied
    from perdure.errors import ToolError as ToolError
    from perdure.errors import ToolLost as ToolLost
    from perdure.errors import ToolTimeout as ToolTimeout
    from perdure.errors import ToolUnavailable as ToolUnavailable
    from perdure.errors import TurnFailed as TurnFailed
    from perdure.errors import TurnOpen as TurnOpen
    from perdure.errors import TurnSuspended as TurnSuspended
    from perdure.errors import UnknownTool as UnknownTool
    from perdure.errors import Unsupported as Unsupported
    from perdure.errors import UnsupportedVersion as UnsupportedVersion
    from perdure.errors import Waiting as Waiting
    from perdure.errors import WrongArgument as WrongArgument
    from perdure.events.consumer import Follower as Follower
    from perdure.events.types import Event as Event
    from perdure.events.types import LiveEvent as LiveEvent
    from perdure.events.types import Snapshot as Snapshot
    from perdure.events.wire import wire as wire
    from perdure.models.prices import Price as Price
    from perdure.models.prices import dollars as dollars
    from perdure.session.codec import body_of as body_of
    from perdure.session.entries import LEAF as LEAF
    from perdure.session.entries import Entry as Entry
    from perdure.session.flows.feed import FeedItem as FeedItem
    from perdure.session.flows.graph import FlowEdge as FlowEdge
    from perdure.session.flows.graph import FlowNode as FlowNode
    from perdure.session.flows.graph import Graph as Graph
    from perdure.session.flows.kinds import RunSettings as RunSettings
    from perdure.session.flows.run import FeedbackContext as FeedbackContext
    from perdure.session.flows.run import FlowRun as FlowRun
    from perdure.session.flows.run import FlowState as FlowState
    from perdure.session.flows.run import RoleConfiguration as RoleConfiguration
    from perdure.session.info import SessionInfo as SessionInfo
    from perdure.session.kinds import BranchSummary as BranchSummary
    from perdure.session.kinds import Compaction as Compaction
    from perdure.session.kinds import Custom as Custom
    from perdure.session.kinds import CustomMessage as CustomMessage
    from perdure.session.kinds import ModelChange as ModelChange
    from perdure.session.kinds import ThinkingChange as ThinkingChange
    from perdure.session.kinds import raw_data as raw_data
    from perdure.session.media.inline import InlineMedia as InlineMedia
    from perdure.session.media.inline import content as content
    from perdure.session.media.inline import media as media
    from perdure.session.messages import InFlightMessage as InFlightMessage
    from perdure.session.messages import MediaPart as MediaPart
    from perdure.session.messages import Message as Message
    from perdure.session.messages import TextPart as TextPart
    from perdure.session.messages import ThinkingPart as ThinkingPart
    from perdure.session.messages import ToolCallPart as ToolCallPart
    from perdure.session.messages import ToolResultPart as ToolResultPart
    from perdure.session.messages import Usage as Usage
    from perdure.session.messages import assistant as assistant
    from perdure.session.messages import system as system
    from perdure.session.messages import thinking as thinking
    from perdure.session.messages import tool_call as tool_call
    from perdure.session.messages import tool_result as tool_result
    from perdure.session.messages import user as user
    from perdure.session.notes import Note as Note
    from perdure.session.records import ActivityTotal as ActivityTotal
    from perdure.session.records import FileEdit as FileEdit
    from perdure.session.records import ToolCallRecord as ToolCallRecord
    from perdure.session.records import UsageTotal as UsageTotal
    from perdure.session.search.values import Hit as Hit
    from perdure.session.tree import TreeNode as TreeNode
    from perdure.tools.decorator import tool as tool
    from perdure.tools.mcp.servers import McpServer as McpServer
    from perdure.tools.permissions import Permissions as Permissions
    from perdure.tools.spec import ToolCall as ToolCall
    from perdure.tools.spec import ToolOutput as ToolOutput
    from perdure.tools.spec import ToolSpec as ToolSpec

    __version__: str

_MODULES = ("blocking", "errors", "testing", "types")
"""Public modules of this package."""

_NAMES: Mapping[str, tuple[str, ...]] = {
    "perdure.client.agents.agent": (
        "Agent",
        "Fallback",
    ),
    "perdure.client.agents.chat": ("Chat",),
    "perdure.client.agents.files.lookup": ("load_agents",),
    "perdure.client.agents.files.reader": ("agent_of_text",),
    "perdure.client.agents.files.writer": ("agent_text",),
    "perdure.client.agents.session_usage": (
        "SessionUsage",
        "revoke",
        "standing_of",
    ),
    "perdure.client.conversation.append": (
        "AppendOptions",
        "Appended",
        "CommittedSessions",
    ),
    "perdure.client.conversation.workspace": (
        "Selection",
        "Workspace",
    ),
    "perdure.engine.turns.config": (
        "Budget",
        "CompactionSettings",
        "Limits",
    ),
    "perdure.client.flows.feeds": ("RoleFeed",),
    "perdure.client.flows.flow": ("Flow",),
    "perdure.client.flows.flows": ("Flows",),
    "perdure.client.open": ("open",),
    "perdure.bounds.limits": (
        "InputLimits",
        "use_input_limits",
    ),
    "perdure.client.reads": ("OpenQuestion",),
    "perdure.client.agents.runtime": ("Runtime",),
    "perdure.client.session": ("Session",),
    "perdure.client.store": ("Store",),
    "perdure.client.agents.turn": (
        "Reply",
        "Turn",
    ),
    "perdure.client.watch": ("Watch",),
    "perdure.events.consumer": ("Follower",),
    "perdure.context.build": ("Context",),
    "perdure.engine.flows.rules.pending": ("FlowWait",),
    "perdure.engine.hooks.points": ("Block",),
    "perdure.engine.hooks.registry": ("Hooks",),
    "perdure.errors": (
        "AlreadyAnswered",
        "ApprovalStale",
        "AmbiguousId",
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
        "MediaMissing",
        "McpUnavailable",
        "ModelError",
        "ModelRefused",
        "ModelUnavailable",
        "NotAStore",
        "NotAsyncio",
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
        "NotImported",
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
    ),
    "perdure.events.types": (
        "Event",
        "LiveEvent",
        "Snapshot",
    ),
    "perdure.events.wire": ("wire",),
    "perdure.models.prices": (
        "Price",
        "dollars",
    ),
    "perdure.session.codec": ("body_of",),
    "perdure.session.entries": (
        "LEAF",
        "Entry",
    ),
    "perdure.session.flows.feed": ("FeedItem",),
    "perdure.session.flows.graph": (
        "FlowEdge",
        "FlowNode",
        "Graph",
    ),
    "perdure.session.flows.kinds": ("RunSettings",),
    "perdure.session.flows.run": (
        "FeedbackContext",
        "FlowRun",
        "FlowState",
        "RoleConfiguration",
    ),
    "perdure.session.info": ("SessionInfo",),
    "perdure.session.kinds": (
        "BranchSummary",
        "Compaction",
        "Custom",
        "CustomMessage",
        "ModelChange",
        "ThinkingChange",
        "raw_data",
    ),
    "perdure.session.media.inline": (
        "InlineMedia",
        "content",
        "media",
    ),
    "perdure.session.messages": (
        "InFlightMessage",
        "MediaPart",
        "Message",
        "TextPart",
        "ThinkingPart",
        "ToolCallPart",
        "ToolResultPart",
        "Usage",
        "assistant",
        "system",
        "thinking",
        "tool_call",
        "tool_result",
        "user",
    ),
    "perdure.session.notes": ("Note",),
    "perdure.session.records": (
        "ActivityTotal",
        "FileEdit",
        "ToolCallRecord",
        "UsageTotal",
    ),
    "perdure.session.search.values": ("Hit",),
    "perdure.session.tree": ("TreeNode",),
    "perdure.tools.decorator": ("tool",),
    "perdure.tools.mcp.servers": ("McpServer",),
    "perdure.tools.permissions": ("Permissions",),
    "perdure.tools.spec": (
        "ToolCall",
        "ToolOutput",
        "ToolSpec",
    ),
}
"""Module -> the public names it defines."""

_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def _loaded(name: str) -> object:
    """Import the public name `name` and cache it."""
    if name in _HOMES:
        with importlib.import_module("perdure.stores.access.collector").collector_paused():
            value: object = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"{__name__}.{name}")
    elif name == "__version__":
        value = importlib.import_module("importlib.metadata").version(__name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


if not TYPE_CHECKING:  # otherwise type checkers would accept every misspelled name
    __getattr__ = _loaded
    __all__ = [*_HOMES, *_MODULES]  # noqa: PLE0604 - the tables hold names


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES, "__version__"})
