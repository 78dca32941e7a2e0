"""Shared base of test machines that run one flow at random: loop, folder, store, oracle."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from hypothesis.stateful import RuleBasedStateMachine

from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.stores.in_memory.store import MemoryStore
from tests.fakes.clock import SeededRandom
from tests.fakes.flow_log import FLOW
from tests.fakes.flow_oracle import FlowOracle
from tests.fakes.random_flows import AtOnce, HastyClock, Moment, Process


class FlowMachine(RuleBasedStateMachine):
    """A store in memory, processes that work on it, and an oracle that reads the flow's log.

    `seen` is the seq of the last entry that the oracle processed, -1 before there is a flow.
    """

    def __init__(self, clock: HastyClock | None = None) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(AtOnce())
        self.folder = Path(tempfile.mkdtemp(prefix="perdure-flow-"))
        self.clock = clock or HastyClock()
        self.store = MemoryStore(clock=self.clock, random=SeededRandom(1))
        self.oracle = FlowOracle()
        self.dead: set[str] = set()
        self.processes = 0
        self.serial = 0
        self.seen = -1
        self._wrong: str | None = None

    def let_go(self) -> None:
        """Close the loop, and remove the folder."""
        self.loop.close()
        shutil.rmtree(self.folder)

    def process(self, dies_at: int | None = None, moment: Moment = "before") -> Process:
        """Return the next process that works on the store; it can die at commit `dies_at`."""
        self.processes += 1
        return Process(self.store, f"process {self.processes}", self.dead, dies_at, moment)

    async def told(self) -> AsyncIterator[tuple[Entry, object]]:
        """Yield the new entries of the flow's log, each after the oracle has processed it.

        Raises: AssertionError for an entry that breaks a rule; after that, every later call raises
        it again, because the first caller can be a turn, whose failures are expected.
        """
        assert self._wrong is None, self._wrong
        for entry in await self.store.entries(FLOW, after=self.seen):
            body = body_of(entry)
            self.seen = entry.seq
            try:
                self.oracle.follow(entry.id, body)
            except AssertionError as error:
                self._wrong = f"{entry.id} {body}: {error}"
                raise AssertionError(self._wrong) from error
            yield entry, body
