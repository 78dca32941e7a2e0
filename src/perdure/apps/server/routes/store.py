"""Routes on the store: its size, its verification, its agents, and the contents of messages."""

from __future__ import annotations

from typing import Any, cast

from litestar import Response, get, post
from litestar.params import FromPath, FromQuery

from perdure.apps.server.problems import Problem
from perdure.apps.server.routes.parameters import SessionId, TheCaller, TheConversations
from perdure.apps.server.values import (
    AgentView,
    BackupView,
    ClusterView,
    MaintenanceView,
    Page,
    QueueView,
    RetentionView,
    StoreView,
    VerifiedView,
    WorkerView,
    time_of,
)
from perdure.apps.server.views import view_of
from perdure.client.cluster.status import cluster_status
from perdure.client.retention import apply_retention, retention
from perdure.client.store import Store
from perdure.errors import Unsupported
from perdure.events.wire import wire
from perdure.session.messages import MediaPart
from perdure.stores.cluster.protocol import SharedStore, WorkerInfo

_OCTETS = "application/octet-stream"
_SHOWN_AS_IS = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
"""Media types that a browser can show; other content is a download without a media type."""

_CONTENT_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
}


@get("/store")
async def show_store(caller: TheCaller) -> StoreView:
    """Show the size and the kind of the store."""
    caller.require_all()
    return view_of(StoreView, await caller.store.info())


@get("/cluster")
async def show_cluster(caller: TheCaller) -> ClusterView:
    """Show the workers that serve the namespace, and its queues."""
    caller.require_all("admin")
    backend = caller.store.backend
    if not isinstance(backend, SharedStore):
        return ClusterView(is_shared=False, workers=[], queues=[], counts={})
    found = await cluster_status(backend, caller.store.outside.clock)
    namespace = backend.namespace
    return ClusterView(
        is_shared=True,
        workers=[_worker_view(each) for each in found.workers if namespace in each.namespaces],
        queues=[view_of(QueueView, each) for each in found.queues],
        counts=dict(found.counts),
    )


@get("/store/maintenance")
async def show_maintenance(caller: TheCaller) -> MaintenanceView:
    """Show the backups of the store and the retention rules of the namespace."""
    caller.require_all("admin")
    return MaintenanceView(
        backups=await _backups(caller.store), retention=await _retention(caller.store)
    )


async def _backups(store: Store) -> list[BackupView] | None:
    try:
        found = await store.backend.retention.backups()
    except Unsupported:
        return None
    newest = sorted(found, key=lambda each: each.at, reverse=True)
    return [BackupView(path=each.path, at=time_of(each.at)) for each in newest]


async def _retention(store: Store) -> RetentionView | None:
    try:
        policy = await retention(store)
        report = await apply_retention(store, policy, is_dry_run=True)
    except Unsupported:
        return None
    return view_of(RetentionView, policy, expiring=len(report.plan.expiring))


@post("/store/verify", status_code=200)
async def verify_store(caller: TheCaller) -> VerifiedView:
    """Check every hash of the store."""
    caller.require_all("admin")
    found = await caller.store.verify()
    problems = [cast("dict[str, Any]", wire(problem)) for problem in found.problems]
    return view_of(VerifiedView, found, problems=problems)


def _worker_view(worker: WorkerInfo) -> WorkerView:
    agents = list(worker.agents) if len(worker.namespaces) == 1 else []
    return view_of(WorkerView, worker, agents=agents)


@get("/agents")
async def list_agents(caller: TheCaller, conversations: TheConversations) -> Page[AgentView]:
    """List the agents with which sessions can be started."""
    agents = conversations.runtime.host.agents
    return Page(
        items=[
            view_of(AgentView, agent, tools=sorted(agent.registry.names))
            for id, agent in sorted(agents.items())
            if caller.principal.agent in (None, id)
        ]
    )


@get("/sessions/{session_id:str}/contents/{digest:str}")
async def show_content(
    caller: TheCaller,
    session_id: SessionId,
    digest: FromPath[str],
    entry: FromQuery[str],
) -> Response[bytes]:
    """Return the bytes of an image or another file in a message of the session."""
    session, handle = await caller.session(session_id), f"media://{digest}"
    message = (await session.entry(entry)).message
    parts = () if message is None else message.parts
    for part in parts:
        if isinstance(part, MediaPart) and part.handle == handle:
            kind = part.mime_type if part.mime_type in _SHOWN_AS_IS else _OCTETS
            headers = _CONTENT_HEADERS | (
                {} if kind != _OCTETS else {"Content-Disposition": "attachment"}
            )
            data = await caller.store.content(handle)
            return Response(data, media_type=kind, headers=headers)
    raise Problem(404, "content_not_found", f"entry {entry!r} holds no content {digest!r}")
