"""The texts around the summaries of a role's session, made from the flow and its files."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from perdure.engine.flows.files.contracts import contracts
from perdure.engine.flows.files.record import RecordFolder
from perdure.engine.flows.files.required_readings import Library
from perdure.engine.flows.journal import Journal
from perdure.engine.flows.prompts.compaction import (
    NodeTexts,
    inputs_of,
    node_frame,
    reflection_frame,
)
from perdure.engine.flows.prompts.entry import RequiredText
from perdure.engine.flows.prompts.reflection import read_findings, reflection_message
from perdure.engine.flows.rules.improvement import RoleWork
from perdure.engine.turns.environment import SummaryFrame, ToCompact
from perdure.errors import ConfigError, EntryNotFound
from perdure.session.flows.graph import FlowNode
from perdure.session.flows.run import FlowState
from perdure.stores.session_store import SessionStore


class SummaryFrames:
    """Makes the texts around the summaries of the roles of one flow."""

    def __init__(
        self, store: SessionStore, journal: Journal, record: RecordFolder, library: Library
    ) -> None:
        self._store = store
        self._journal = journal
        self._record = record
        self._library = library

    async def of(self, role: str, compacted: ToCompact) -> SummaryFrame | None:
        """Return the texts around the summary of `role`; None if the role is at no node."""
        state = await self._journal.state()
        if state.run.improvement_phase is not None and state.run.improvement_phase.mode:
            return reflection_frame(state, role, await self._reflection(state, role), compacted)
        node = state.graph.node(state.at_node.get(role, ""))
        if node is None:
            return None
        readings = await asyncio.to_thread(self._readings, node)
        inputs = await self._inputs(state, node)
        texts = NodeTexts(contracts(), readings, inputs)
        return node_frame(state, role, node, texts, compacted)

    async def _reflection(self, state: FlowState, role: str) -> str:
        order, phase = state.improvement, state.run.improvement_phase
        before = () if order is None else order.predecessors(role)
        found = {} if phase is None else phase.findings_produced
        work = RoleWork(role, tuple(found[each] for each in before if each in found))
        texts = await asyncio.to_thread(self._record.texts, read_findings(state, work))
        return reflection_message(state, work, contracts(), texts)

    def _readings(self, node: FlowNode) -> tuple[RequiredText, ...]:
        """Return the readings of `node`, omitting those that are missing. Blocks the thread."""
        found: list[RequiredText] = []
        for name in node.required_readings:
            with suppress(ConfigError):
                found += self._library.by_name((name,), f"node {node.id!r}")
        return tuple(found)

    async def _inputs(self, state: FlowState, node: FlowNode) -> dict[str, str]:
        """Return the inputs of `node` by path, with their stored contents if available."""
        texts: dict[str, str] = {}
        for key, path in inputs_of(state, node).items():
            paths, digests = state.run.history_handoff[key], state.digests.get(key, ())
            if len(paths) == len(digests):
                with suppress(EntryNotFound):
                    content = await self._store.blob(digests[paths.index(path)])
                    texts[path] = content.decode(errors="replace")
                    continue
            texts |= await asyncio.to_thread(self._record.texts, (path,))
        return texts
