"""Wait until a person answers the question of a turn, or the question expires."""

from __future__ import annotations

import asyncio
import logging

from perdure.engine.turns.environment import Environment
from perdure.engine.turns.inputs import Expired, Woken
from perdure.engine.turns.state import PendingQuestion
from perdure.secrets.mask import mask_secrets
from perdure.stores.wakeups import change

_log = logging.getLogger(__name__)


async def answer_wait(
    environment: Environment, asked: PendingQuestion, head: int
) -> Woken | Expired:
    """Wait for an entry after seq `head` about the question `asked`, or for the question's expiry.

    During the wait, this session and the sessions that wait for it are marked as waiting for a
    person. If the question has no answer when the wait begins, a line is written to the program's
    log and `person_waits.on_wait` is called.
    """
    expires_at = asked.question.expires_at
    sessions = (environment.stream, *environment.invoked_by)
    with environment.person_waits.waiting(sessions):
        if asked.answer is None:
            text = mask_secrets(asked.question.text)
            _log.warning("session %s waits for an answer to %s: %s", sessions[0], asked.id, text)
            environment.person_waits.on_wait(environment.stream, asked.id)
        if expires_at is None:
            return await _woken_by_answer(environment, asked, head)
        left_s = (expires_at - environment.clock.now_ms()) / 1000
        answered = asyncio.ensure_future(_woken_by_answer(environment, asked, head))
        expired = asyncio.ensure_future(environment.clock.sleep(left_s))
        try:
            await asyncio.wait((answered, expired), return_when=asyncio.FIRST_COMPLETED)
            return answered.result() if answered.done() else Expired()
        finally:
            answered.cancel()
            expired.cancel()
            await asyncio.wait((answered, expired))


async def _woken_by_answer(environment: Environment, asked: PendingQuestion, head: int) -> Woken:
    changes = environment.store.changes(environment.stream)
    while True:
        added = await environment.store.entries(environment.stream, after=head)
        if any(entry.about == asked.id for entry in added):
            return Woken()
        await change(changes, environment.store.address)
