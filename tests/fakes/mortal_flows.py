"""Flows of roles with tools, and ways to die in the middle of them.

The crash tests run the flows in child processes, which kill themselves, and in their own process,
which takes over. The answers of roles depend on the request alone.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Literal, cast

import msgspec

import perdure
from perdure.client.store import Store
from perdure.engine.flows.rules.flow_waits import FlowWait
from perdure.models.scenario import CallTools, Reply, Say, Scenario, ScriptedCall, When
from perdure.models.scripted import ScriptedModel
from perdure.session.flows.run import FlowRun, FlowState
from perdure.session.messages import Usage
from perdure.stores.protocol import Commit, CommitResult
from perdure.stores.session_store import SessionStore
from tests.fakes.two_tools import Death, MortalStore, Reaper

FLOW = "the-flow"
RECORD = "record"

Kind = Literal["two", "three", "chosen", "declined"]


class FlowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One run: its folder, its flow, and the point at which its process dies."""

    folder: str
    kind: Kind = "two"
    death: Death = Death()

    @property
    def address(self) -> str:
        """The address of the store."""
        return f"sqlite:///{self.folder}/log.db"


class _Counted(MortalStore):
    """A store that reports each finished commit on a file descriptor."""

    def __init__(self, store: SessionStore, reaper: Reaper, told: int | None) -> None:
        super().__init__(store, reaper, None)
        self._told = told

    async def commit(self, commit: Commit) -> CommitResult:
        self._reaper.pass_by("before_commit")
        committed = await self._store.commit(commit)
        if self._told is not None:
            os.write(self._told, b"commit\n")
        self._reaper.pass_by("after_commit")
        return committed


GRAPHS: dict[Kind, perdure.Graph] = {
    "two": perdure.Graph(
        "two roles",
        (
            perdure.FlowNode("owner-intake", "owner"),
            perdure.FlowNode("build", "developer"),
            perdure.FlowNode("end", "owner"),
        ),
        (perdure.FlowEdge("owner-intake", "build"), perdure.FlowEdge("build", "end")),
    ),
    "chosen": perdure.Graph(
        "one role, for which a model chooses",
        (perdure.FlowNode("owner-intake", "owner"),),
        (),
    ),
    "declined": perdure.Graph(
        "a handoff that is declined, and full contexts",
        (
            perdure.FlowNode("owner-intake", "owner", has_human=True),
            perdure.FlowNode("build", "developer", has_human=True),
            perdure.FlowNode("end", "owner"),
        ),
        (perdure.FlowEdge("owner-intake", "build"), perdure.FlowEdge("build", "end")),
    ),
    "three": perdure.Graph(
        "three roles",
        (
            perdure.FlowNode("owner-intake", "owner"),
            perdure.FlowNode("build", "developer"),
            perdure.FlowNode("review", "reviewer"),
            perdure.FlowNode("end", "owner"),
        ),
        (
            perdure.FlowEdge("owner-intake", "build"),
            perdure.FlowEdge("build", "review"),
            perdure.FlowEdge("review", "end"),
        ),
    ),
}

_CLOSE = Say("```handoff\ntype: forward-pass-closed\n```")
_ASK = Say("Shall it be closed?\n```handoff\ntype: prompt-human\n```")


WINDOW = 10_000
"""Size of the context window of the roles, in tokens."""

_FULL = Usage(WINDOW - 100, 100)
_SUMMARY = Say("The plan has to say who signs it; what is handed over comes after that. " * 3)


def _hands(at: str, file: str, target: str, usage: Usage | None = None) -> list[Reply]:
    """Write `file` with a tool, then hand it over; `usage` belongs to the last answer."""
    call = CallTools((ScriptedCall("write_note", f'{{"name": "{file}"}}'),))
    block = f"```handoff\ntarget_node_id: {target}\nartifact_path: {file}\n```"
    return [
        Reply(when=When(user_contains=at, after="user"), steps=(call,)),
        Reply(when=When(user_contains=at), steps=(Say(block),), usage=usage),
    ]


MODELS = ("scripted:flow", "scripted:other")

RULES: dict[Kind, list[Reply]] = {
    "chosen": [
        Reply(when=When(user_contains="no model 'p:m'"), steps=(Say("model=scripted:flow"),)),
        Reply(when=When(user_contains="Role instance `owner`"), steps=(Say("model=p:m"),)),
        Reply(when=When(user_contains="`owner-intake` started"), steps=(_CLOSE,)),
    ],
    "declined": [
        Reply(when=When(asks_summary=True), steps=(_SUMMARY,)),
        *_hands("Bo signs.", "signed.md", "build", _FULL),
        *_hands("Say less.", "short.md", "end"),
        *_hands("`owner-intake` started", "plan.md", "build", _FULL),
        *_hands("`build` started", "long.md", "end", _FULL),
        Reply(when=When(user_contains="close it"), steps=(_CLOSE,)),
        Reply(when=When(user_contains="`end` started"), steps=(_ASK,), usage=_FULL),
    ],
    "two": [
        *_hands("`owner-intake` started", "plan.md", "build"),
        *_hands("`build` started", "done.md", "end"),
        Reply(when=When(user_contains="`end` started"), steps=(_CLOSE,)),
    ],
    "three": [
        *_hands("`owner-intake` started", "plan.md", "build"),
        *_hands("`build` started", "one.md", "review"),
        *_hands("`review` started", "no.md", "build"),  # it is sent back once
        *_hands("`build` resumed", "two.md", "review"),
        *_hands("`review` resumed", "yes.md", "end"),
        Reply(when=When(user_contains="`end` started"), steps=(_ASK,)),
        Reply(when=When(user_contains="close it"), steps=(_CLOSE,)),
    ],
}


REPLIES = {"owner-intake": "Bo signs.", "build": "Say less."}


async def finished(plan: FlowPlan, store: Store, told: int | None = None) -> FlowRun:
    """Start or resume the flow, run it to its end, and answer its questions."""
    reaper = Reaper(plan.death)
    store.backend = cast("SessionStore", _Counted(store.backend, reaper, told))
    # An answer that is begun anew is the one that would have come.
    flows = perdure.Flows(_runtime(plan, store), on_interrupt="retry", offered_models=MODELS)
    async with flows:
        flow = await _begun(plan, flows)
        while (run := await flow.run()).status != "completed":
            for waiting in await flow.waiting():
                assert waiting.topic != "autonomous-abort", waiting.text
                if waiting.topic == "prompt-human":
                    said = REPLIES.get(waiting.target or "", "close it")
                    await _unless_done(flow.reply(said, waiting.target))
                if waiting.topic == "handoff-approval":
                    await _unless_done(_judged(flow, waiting))
                if waiting.topic == "improvement-choice":
                    await _unless_done(flow.choose_improvement("none"))
    return run


async def _begun(plan: FlowPlan, flows: perdure.Flows) -> perdure.Flow:
    try:
        return await flows.open(FLOW)
    except perdure.errors.SessionNotFound:
        try:
            return await flows.start(
                GRAPHS[plan.kind],
                id=FLOW,
                workspace=plan.folder,
                record_folder=RECORD,
                project="p",
                configuring="auto" if plan.kind == "chosen" else "given",
            )
        except perdure.errors.SessionExists:  # another process was faster
            return await flows.open(FLOW)


def _judged(flow: perdure.Flow, waiting: FlowWait) -> Awaitable[FlowState]:
    """Decline the first version of a file and approve the second."""
    if any(name in waiting.text for name in ("plan.md", "long.md")):
        return flow.decline(waiting.target, f"{waiting.target} can do better")
    return flow.approve(waiting.target)


async def _unless_done(answering: Awaitable[FlowState]) -> None:
    with suppress(perdure.errors.FlowRefusal):  # another process answered
        await answering


def _runtime(plan: FlowPlan, store: Store) -> perdure.Runtime:
    @perdure.tool(effect="write", on_unknown="retry")
    async def write_note(name: str) -> str:
        """Write a note into the record folder. An existing note must have the same text."""
        (Path(plan.folder) / RECORD / name).write_text(f"what {name} says")
        return f"wrote {name}"

    window = WINDOW if plan.kind == "declined" else None
    scenario = Scenario(name="flow", rules=tuple(RULES[plan.kind]), context_window=window)
    models = ScriptedModel(scenario, clock=store.outside.clock)
    agents = [
        perdure.Agent(role, model="scripted:flow", tools=[write_note])
        for role in GRAPHS[plan.kind].roles
    ]
    return perdure.Runtime(store, agents, models=models)
