"""Resumes interrupted turns, one after another."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Literal

import msgspec

from perdure.apps.chat.command import cast_for
from perdure.apps.chat.permissions import TypedPermissions
from perdure.apps.chat.questions import pending_questions
from perdure.apps.chat.session import AnswerOptions
from perdure.apps.chat.turn_view import show_turn
from perdure.apps.cli.exits import NeedsAnswer
from perdure.apps.settings.layers import Configuration
from perdure.apps.terminal.advice import message_of
from perdure.apps.terminal.event_lines import QuietTeller
from perdure.apps.terminal.text import safe
from perdure.apps.wiring import scenario_in
from perdure.client.store import Store
from perdure.errors import PerdureError
from perdure.session.ids import StreamId

Ending = Literal["completed", "waiting", "failed", "stopped", "not interrupted"]


class ResumedTurn(msgspec.Struct, frozen=True):
    """How the interrupted turn of a session ended.

    `detail` is the text of the turn's answer, question or error.
    """

    session: StreamId
    ending: Ending
    detail: str = ""


async def resume_turns(
    store: Store, sessions: Sequence[StreamId], scenario: Path | None = None
) -> AsyncGenerator[ResumedTurn]:
    """Resume the interrupted turn of each of `sessions` until it ends or waits for a person.

    If `sessions` is empty, every interrupted turn is resumed. If Ctrl-C stops a turn, no further
    turn is resumed. A turn whose model cannot be called here stays interrupted. `scenario` is a
    scenario for the scripted model.
    """
    settings = Configuration(Path(), os.environ)
    cast = cast_for(None, settings, os.environ, TypedPermissions())
    acted = None if scenario is None else scenario_in(scenario)
    answering = AnswerOptions(store, model=None, scenario=acted, cast=cast)
    interrupted = [info.id for info in await store.recent(None, status="interrupted")]
    async with aclosing(answering), answering.runtime:
        for session in sessions or interrupted:
            end = await _end_of(answering, session)
            yield end
            if end.ending == "stopped":
                return


async def _end_of(answering: AnswerOptions, session: StreamId) -> ResumedTurn:
    try:
        resumed = await answering.go_on(session)
        if resumed.turn is None:
            return ResumedTurn(session, "not interrupted")
        pending = await pending_questions(resumed.chat)
        reply = await show_turn(
            answering.store,
            resumed.chat,
            resumed.turn,
            QuietTeller(),
            after=resumed.head,
            pending=pending,
        )
    except NeedsAnswer as waiting:
        return ResumedTurn(
            session, "waiting", f"{waiting.text.strip()}: `perdure inbox` answers it"
        )
    except PerdureError as error:
        return ResumedTurn(session, "failed", message_of(error))
    if reply is None:
        return ResumedTurn(session, "stopped")
    return ResumedTurn(session, "completed", safe(reply.text))
