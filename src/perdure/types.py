"""`perdure.types`: types of arguments and return values, for annotations.

The most common names are in `perdure` itself; handles without async are in `perdure.blocking`.
"""

from __future__ import annotations

from perdure.client.conversation.append import ExpectedLeaf as ExpectedLeaf
from perdure.client.conversation.append import Item as Item
from perdure.client.conversation.append import Parent as Parent
from perdure.client.flows.deletion import DeletedFlow as DeletedFlow
from perdure.client.open import StoreOpening as StoreOpening
from perdure.client.reads import EntryRef as EntryRef
from perdure.context.compaction import LeftContext as LeftContext
from perdure.context.emission import ContextMessage as ContextMessage
from perdure.egress.destinations import Destination as Destination
from perdure.engine.hooks.registry import Registered as Registered
from perdure.engine.turns.environment import SilenceLimits as SilenceLimits
from perdure.events.cursor import Cursor as Cursor
from perdure.events.types import AnyEvent as AnyEvent
from perdure.interop.reports import Dialect as Dialect
from perdure.interop.reports import Exported as Exported
from perdure.interop.reports import ExportedFile as ExportedFile
from perdure.interop.reports import ExportFormat as ExportFormat
from perdure.interop.reports import FileOutcome as FileOutcome
from perdure.interop.reports import ImportedFiles as ImportedFiles
from perdure.interop.reports import ImportReport as ImportReport
from perdure.interop.reports import Redaction as Redaction
from perdure.memory.hits import Why as Why
from perdure.memory.scope import ScopeName as ScopeName
from perdure.models.retry import RetryPolicy as RetryPolicy
from perdure.secrets.vault import Taint as Taint
from perdure.session.codec import Unknown as Unknown
from perdure.session.flows.kinds import DocumentBound as DocumentBound
from perdure.session.flows.kinds import HandoffTarget as HandoffTarget
from perdure.session.flows.kinds import Offers as Offers
from perdure.session.flows.kinds import RepairAsked as RepairAsked
from perdure.session.flows.kinds import SelectorOpened as SelectorOpened
from perdure.session.flows.run import Asked as Asked
from perdure.session.flows.run import AwaitingHuman as AwaitingHuman
from perdure.session.flows.run import CommandGrant as CommandGrant
from perdure.session.flows.run import CommandGrants as CommandGrants
from perdure.session.flows.run import ConsentState as ConsentState
from perdure.session.flows.run import Declined as Declined
from perdure.session.flows.run import HumanInput as HumanInput
from perdure.session.flows.run import ImprovementPhase as ImprovementPhase
from perdure.session.flows.run import ToolGrant as ToolGrant
from perdure.session.flows.run import ToolGrants as ToolGrants
from perdure.session.info import Origin as Origin
from perdure.session.info import Status as Status
from perdure.session.kinds import TreeBody as TreeBody
from perdure.session.ledger import Delegated as Delegated
from perdure.session.ledger import Spending as Spending
from perdure.session.memory.facts import FactVersion as FactVersion
from perdure.session.memory.kinds import EpisodeEnd as EpisodeEnd
from perdure.session.memory.kinds import SaidBy as SaidBy
from perdure.session.messages import UnknownPart as UnknownPart
from perdure.session.notes import Question as Question
from perdure.session.notes import SideBody as SideBody
from perdure.session.records import ActivityGroup as ActivityGroup
from perdure.session.records import UsageGroup as UsageGroup
from perdure.session.search.values import SearchRole as SearchRole
from perdure.stores.protocol import Capabilities as Capabilities
from perdure.stores.protocol import Problem as Problem
from perdure.stores.protocol import StoreInfo as StoreInfo
from perdure.stores.protocol import Verification as Verification
from perdure.stores.retention.erase import Certificate as Certificate
from perdure.stores.retention.erase import Copy as Copy
from perdure.stores.retention.erase import Counts as Counts
from perdure.stores.retention.erase import ErasedSession as ErasedSession
from perdure.stores.retention.erase import ForkPolicy as ForkPolicy
from perdure.tools.approval import Bound as Bound
from perdure.tools.approval import Doubt as Doubt
from perdure.tools.decorator import Declares as Declares
from perdure.tools.decorator import FunctionTool as FunctionTool
from perdure.tools.registry import Declaration as Declaration
from perdure.tools.registry import ToolRegistry as ToolRegistry
from perdure.tools.spec import Subject as Subject
