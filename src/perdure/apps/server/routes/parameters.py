"""The parameters that routes share, and the rules for the parameters of all routes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from litestar import Request
from litestar.di import NamedDependency
from litestar.params import FromQuery, PathParameter, QueryParameter

from perdure.apps.server.access.caller import Caller
from perdure.apps.server.access.rates import Rates
from perdure.apps.server.conversations import Conversations
from perdure.apps.server.flows.runs import FlowRuns
from perdure.apps.server.problems import Problem, query_fields
from perdure.apps.session_rows import RowFilter, RowParts, SessionState
from perdure.client.memory.handle import Memory
from perdure.session.info import SoughtStatus

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
"""Maximum number of items on one page of a list."""

LARGEST_SEQ = 2**53 - 1
"""The largest seq that every JSON parser reads exactly."""

TheRows = NamedDependency[RowFilter]
"""The sessions that the filters of the request select, as far as the caller may see them."""


async def selected_rows(
    caller: TheCaller,
    *,
    subject: FromQuery[str | None] = None,
    source: FromQuery[str | None] = None,
    folder: FromQuery[str | None] = None,
    agent: FromQuery[str | None] = None,
    status: FromQuery[SoughtStatus | None] = None,
    standing: Annotated[SessionState | None, QueryParameter(name="state")] = None,
    match: Annotated[
        Literal["whole", "part"],
        QueryParameter(
            description="How `agent`, `subject`, `source` and `folder` match: the whole value, "
            "or a part of it in upper or lower case."
        ),
    ] = "whole",
) -> RowFilter:
    """Return the filters shared by lists of sessions and by the search.

    By default, the filters select only exact names. With `match` "part", a part of a name is
    enough.
    """
    own = caller.principal
    if match == "part":
        return RowFilter(
            subject=own.subject,
            agents=_known(own.agent),
            status=status,
            state=standing,
            parts=RowParts(agent=agent, subject=subject, source=source, folder=folder),
        )
    return RowFilter(
        cwd=folder,
        subject=caller.subject_or(subject),
        source=source,
        status=status,
        state=standing,
        agents=_known(own.agent, agent),
    )


def _known(*agents: str | None) -> frozenset[str]:
    return frozenset(each for each in agents if each is not None)


class ApiRequest(Request[Any, Any, Any]):
    """A request to the API. An empty body is treated as an object without fields."""

    async def body(self) -> bytes:
        """Return the body."""
        takes_fields = self.route_handler.parsed_data_field is not None
        return await super().body() or (b"{}" if takes_fields else b"")


def require_known_parameters(request: Request[Any, Any, Any]) -> None:
    """Raises: Problem 400 if `request` has a query parameter that its route does not have."""
    fields = query_fields(request.route_handler)
    known = {getattr(each.kwarg_definition, "name", None) or name for name, each in fields.items()}
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        takes = f"; this takes {', '.join(sorted(known))}" if known else ""
        detail = f"unknown parameter {unknown[0]!r}{takes}"
        raise Problem(400, "parameter_unknown", detail, parameter=unknown[0])
