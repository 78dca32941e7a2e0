"""A turn with two tool calls whose effects can be counted, and ways to die in the middle of it.

The crash tests run the turn in child processes, which kill themselves, and in their own process,
which takes over.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

import perdure
from perdure.client.agents.chat import Chat
from perdure.client.agents.runtime import Runtime
from perdure.client.store import Store
from perdure.models.protocol import Delta, ModelInfo, ModelRequest, TextDelta
from perdure.models.scenario import CallTools, Reply, Say, Scenario, ScriptedCall, Think, When
from perdure.models.scripted import ScriptedModel
from perdure.session.clock import Clock
from perdure.session.ledger import InterruptPolicy, UnknownPolicy
from perdure.stores.protocol import Commit, CommitResult
from perdure.stores.session_store import SessionStore
from perdure.tools.spec import ToolCall

SESSION = "the-session"
QUESTION = "Write one and two, then tell me."
ANSWER = "Both are written."

Moment = Literal[
    "never", "before_commit", "after_commit", "before_effect", "after_effect", "stream"
]


class Death(msgspec.Struct, frozen=True):
    """The point at which the process kills itself: the `n`-th moment of this kind, from 1 on."""

    moment: Moment = "never"
    n: int = 1


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One run: its folder, its policies, and the point at which it dies.

    Without an `answer`, the process does not answer the questions of its turn.
    """

    database: str
    effects: str
    on_unknown: UnknownPolicy = "ask"
    on_interrupt: InterruptPolicy = "retry"
    death: Death = Death()
    answer: str | None = "skip"
    chunk_delay_s: float = 0.0
    max_cost_microcents: int = 0


class Reaper:
    """Kills this process at the moment that the plan defines."""

    def __init__(self, death: Death) -> None:
        self._death = death
        self._seen = 0

    def pass_by(self, moment: Moment) -> None:
        """Count a moment; kill the process at the chosen moment."""
        if moment != self._death.moment:
            return
        self._seen += 1
        if self._seen == self._death.n:
            os.kill(os.getpid(), signal.SIGKILL)


class MortalStore:
    """A store that can kill the process before or after a commit.

    The store writes the entries of each finished commit to a file descriptor.
    """

    def __init__(self, store: SessionStore, reaper: Reaper, acknowledge: int | None) -> None:
        self._store = store
        self._reaper = reaper
        self._acknowledge = acknowledge

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, commit: Commit) -> CommitResult:
        self._reaper.pass_by("before_commit")
        committed = await self._store.commit(commit)
        if self._acknowledge is not None:
            for entry in (entry for share in committed.entries for entry in share):
                line = json.dumps([entry.seq, entry.kind]) + "\n"
                os.write(self._acknowledge, line.encode())
        self._reaper.pass_by("after_commit")
        return committed


class MortalModel:
    """A model client that dies after two pieces of the answer's text were read."""

    def __init__(self, model: ScriptedModel, reaper: Reaper) -> None:
        self._model = model
        self._reaper = reaper

    def info(self, model: str) -> ModelInfo:
        return self._model.info(model)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        texts = 0
        async for delta in self._model.stream(request):
            if texts == 2:
                self._reaper.pass_by("stream")
            texts += isinstance(delta, TextDelta)
            yield delta


def scenario(chunk_delay_s: float) -> Scenario:
    """Return a scenario: first two calls in one message, then the answer with their results."""
    calls = CallTools(
        (
            ScriptedCall("write_line", '{"text": "one"}', id="c1"),
            ScriptedCall("write_line", '{"text": "two"}', id="c2"),
        )
    )
    return Scenario(
        name="two-tools",
        rules=(
            Reply(
                when=When(after="tool"),
                steps=(Say(ANSWER),),
                chunk_chars=4,
                chunk_delay_s=chunk_delay_s,
            ),
            Reply(
                steps=(Think("Two lines."), Say("I shall write them both now."), calls),
                chunk_chars=4,
                chunk_delay_s=chunk_delay_s,
            ),
        ),
    )


def agent(plan: Plan, reaper: Reaper) -> perdure.Agent:
    """Return the agent of the turn; its tool appends the call's key to the effects file."""

    @perdure.tool(effect="external", on_unknown=plan.on_unknown)
    async def write_line(text: str, *, call: ToolCall) -> str:
        """Write a line."""
        reaper.pass_by("before_effect")
        with Path(plan.effects).open("ab", buffering=0) as file:  # noqa: ASYNC230 - the effect
            file.write(f"{call.idempotency_key} {call.attempt} {text}\n".encode())
        reaper.pass_by("after_effect")
        return f"wrote {text}"

    return perdure.Agent(
        "writer",
        model="scripted:two-tools",
        tools=[write_line],
        on_interrupt=plan.on_interrupt,
        max_cost_microcents=plan.max_cost_microcents,
    )


def runtime(plan: Plan, store: Store, clock: Clock, acknowledge: int | None) -> Runtime:
    """Return a runtime whose store, model and tool die at the moment of the plan."""
    reaper = Reaper(plan.death)
    mortal = MortalStore(store.backend, reaper, acknowledge)
    store.backend = cast("SessionStore", mortal)  # all else goes through to the real one
    model = MortalModel(ScriptedModel(scenario(plan.chunk_delay_s), clock=clock), reaper)
    prices = {"scripted:*": perdure.Price(1_000_000, 1_000_000)}  # a micro-cent a token
    return Runtime(store, [agent(plan, reaper)], models=model, prices=prices)


async def begun(plan: Plan, store: Store, acknowledge: int | None = None) -> Chat:
    """Start or resume the session; send the question if the session does not contain it.

    Shape: the turn of the chat is running or has ended.
    """
    running = runtime(plan, store, store.outside.clock, acknowledge)
    try:
        chat = await running.resume(SESSION)
    except perdure.errors.SessionNotFound:
        chat = await running.start("writer", id=SESSION)
    if chat.turn is None and not any(m.role == "user" for m in await chat.session.messages()):
        chat.send(QUESTION)
    return chat


async def finished(plan: Plan, store: Store, acknowledge: int | None = None) -> Chat:
    """Run the session to its end, answering its questions."""
    chat = await begun(plan, store, acknowledge)
    if chat.turn is not None:
        async for event in chat.turn:
            if plan.answer is not None and getattr(event, "type", "") == "inbox:question":
                await answer_all(chat, plan.answer)
    return chat


async def answer_all(chat: Chat, answer: str) -> None:
    """Answer every open question with `answer` if it is a choice, else with the first choice."""
    for asked in await chat.session.questions():
        choices = asked.question.choices
        choice = answer if answer in choices else choices[0]
        await chat.session.answer(asked.id, choice, by="the test")
