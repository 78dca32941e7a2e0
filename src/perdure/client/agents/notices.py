"""Notifications of a runtime: about questions of turns, and about models without a known price."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable

from perdure.bounds.callbacks import run_callback
from perdure.client.agents.agent import Agent
from perdure.client.agents.turn_config import guarded_cost
from perdure.client.reads import OpenQuestion, open_questions
from perdure.client.store import Store
from perdure.engine.turns.config import Budget, OnExceed
from perdure.models.prices import Cost, in_dollars
from perdure.secrets.mask import mask_secrets
from perdure.session.ids import EntryId, StreamId
from perdure.session.messages import Usage
from perdure.session.printable import reveal
from perdure.stores.access.cancellation import cancel_all

_log = logging.getLogger(__name__)

OnQuestion = Callable[[OpenQuestion], Awaitable[object] | object]
"""A plain or async function that is called with each question that a turn begins to wait for."""

_FAILED = "on_question failed for %s with %s; the question stays open, and Store.answer answers it"

_CONSEQUENCES: dict[OnExceed, str] = {
    "fail": "each of its turns fails",
    "warn": "its calls are made and cannot be counted",
    "pause_for_approval": "each of its turns waits for an answer before it calls the model",
}


class QuestionCalls:
    """Calls `on_question` for the turns of one runtime; the turns continue meanwhile."""

    def __init__(self, store: Store, on_question: OnQuestion | None) -> None:
        self._store = store
        self._on_question = on_question
        self._running: set[asyncio.Task[None]] = set()

    def call(self, session: StreamId, question: EntryId) -> None:
        """Call `on_question` for `question`, unless the question is answered meanwhile."""
        if self._on_question is None:
            return
        task = asyncio.ensure_future(self._called(session, question, self._on_question))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def aclose(self) -> None:
        """Cancel the calls that still run.

        If one of the calls closes the runtime, `aclose` does not cancel that call.
        """
        await cancel_all(self._running - {asyncio.current_task()})

    async def _called(self, session: StreamId, question: EntryId, on_question: OnQuestion) -> None:
        open_now = await self._store.backend.open_questions(session)
        now = self._store.outside.clock.now_ms()
        for asked in open_questions(open_now, now):
            if asked.id != question:
                continue
            try:
                await run_callback(on_question, asked)
            except Exception as error:  # noqa: BLE001 - the question stays in the inbox
                _log.error(_FAILED, question, _line(error))


def _line(error: BaseException) -> str:
    """Return type, text and location of `error` in one line, with every secret masked."""
    frames = traceback.extract_tb(error.__traceback__)
    file = frames[-1].filename.replace("\\", "/").rpartition("/")[2] if frames else ""
    place = f" ({file}:{frames[-1].lineno})" if frames else ""
    text = " ".join(reveal(mask_secrets(str(error))).split())
    return f"{type(error).__name__}: {text}{place}"


def unpriced_warning(agent: Agent, budget: Budget, cost: Cost) -> str | None:
    """Return a warning if `agent` has a limited `budget` and models without a known price."""
    known = guarded_cost(cost)
    models = dict.fromkeys(link.model for link in agent.chain)
    unpriced = [model for model in models if known(model, Usage(1, 1)) is None]
    if not unpriced:
        return None
    return (
        f"the price of {' and of '.join(unpriced)} is unknown, so the limit of "
        f"{in_dollars(budget.max_cost_microcents)} cannot be kept: "
        f"{_CONSEQUENCES[budget.on_exceed]}"
    )
