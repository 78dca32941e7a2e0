"""The parameters that routes share."""

from __future__ import annotations

from typing import Annotated

from litestar.di import NamedDependency
from litestar.params import PathParameter, QueryParameter

from perdure.apps.server.access.caller import Caller
from perdure.apps.server.access.rates import Rates
from perdure.apps.server.conversations import Conversations
from perdure.apps.server.flows.runs import FlowRuns
from perdure.client.memory.handle import Memory

TheCaller = NamedDependency[Caller]
"""The caller of the request."""

TheConversations = NamedDependency[Conversations]
"""The conversations of the server."""

TheMemory = NamedDependency[Memory]
"""The memory of the server's store, with its embedder."""

TheRuns = NamedDependency[FlowRuns]
"""The runs of flows in the server."""

TheRates = NamedDependency[Rates]
"""The rate limits of the server."""

SessionId = Annotated[str, PathParameter(description="The whole id of the session.")]

Limit = Annotated[int, QueryParameter(ge=1, le=500)]
"""How many items a part of a list has at most."""
