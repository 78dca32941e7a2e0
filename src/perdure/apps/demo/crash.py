"""The main step: a process is killed inside a tool call, and another process continues.

The process and the SIGKILL are real, so the killed process cannot write anything.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from itertools import zip_longest
from pathlib import Path

import msgspec

from perdure.apps.chat.turn_view import Asked, question_in
from perdure.apps.demo.cast import (
    ADDRESS,
    ASKS_FOR_A_LINE,
    NOTEBOOK,
    Stage,
    demo_agent,
    demo_models,
    lines_in,
)
from perdure.apps.terminal.previews import preview_of
from perdure.client.agents.runtime import Runtime
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.context.build import Context
from perdure.session.entries import Entry
from perdure.session.ledger import ToolFinished, ToolStarted
from perdure.session.messages import ToolResultPart

PATIENCE_S = 40.0
_POLL_S = 0.03
_KIND_CELLS = 14


class Play(msgspec.Struct, frozen=True):
    """The state that all steps of the demonstration share: store, session, folder and stage.

    `address` is the address of `store`; the address can contain a password.
    """

    stage: Stage
    store: Store
    address: str
    session: Session
    folder: Path

    @property
    def notebook(self) -> Path:
        """The file that the tool writes to."""
        return self.folder / NOTEBOOK


@asynccontextmanager
async def runtime_of(play: Play) -> AsyncGenerator[Runtime]:
    """Open a runtime with the demonstration's agent and model."""
    agent = demo_agent(play.folder)
    async with (
        aclosing(demo_models()) as models,
        Runtime(play.store, [agent], models=models) as runtime,
    ):
        yield runtime


async def kill_in_the_middle(play: Play) -> int | None:
    """Continue the session in another process, and kill that process inside its tool call.

    Returns the seq of the last entry before the other process started; None if the other process
    did not reach its tool call.
    """
    stage = play.stage
    head = (await play.store.backend.state(play.session.id)).head
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "perdure.apps.demo.child"),
        *(play.store.backend.namespace, play.session.id, str(play.folder)),
        env={**os.environ, ADDRESS: play.address},
        cwd=play.folder,
        stderr=asyncio.subprocess.PIPE,
    )
    stage.say(f"process {child.pid} says: “{ASKS_FOR_A_LINE}”")
    try:
        is_inside = await _inside_tool(play, child, head)
    finally:
        if child.returncode is None:
            os.kill(child.pid, signal.SIGKILL)
    _, complaint = await child.communicate()
    stage.claim(
        f"process {child.pid} was killed with SIGKILL inside its tool call",
        holds=is_inside and child.returncode == -signal.SIGKILL,
    )
    if not is_inside:
        stage.say(complaint.decode(errors="replace").strip())
        return None
    return head


async def _inside_tool(play: Play, child: asyncio.subprocess.Process, head: int) -> bool:
    """Print new log entries until the tool's side effect; return False if it does not happen."""
    deadline = play.store.outside.clock.steady_s() + PATIENCE_S
    shown = head
    while play.store.outside.clock.steady_s() < deadline and child.returncode is None:
        # Read in this order: if the notebook has the line, the log has every entry before it.
        is_inside = lines_in(play.notebook) > 0
        for entry in await play.store.backend.entries(play.session.id, after=shown):
            _show_entry(play.stage, entry)
            shown = entry.seq
        if is_inside:
            return True
        await asyncio.sleep(_POLL_S)
    return False


def _show_entry(stage: Stage, entry: Entry) -> None:
    preview = preview_of(entry, stage.width - 30)
    number = stage.style.paint(f"{entry.seq:>5}", "faint")
    who = stage.style.paint(f"{preview.who:<{_KIND_CELLS}}", preview.meaning)
    stage.show_all([f"{number}  {who}  {preview.what}"])


async def read_the_evidence(play: Play, head: int) -> None:
    """Print the state of the log at the moment of the kill."""
    stage = play.stage
    entries = await play.store.backend.entries(play.session.id, after=head)
    started = [entry for entry in entries if entry.kind == ToolStarted.kind]
    finished = [entry for entry in entries if entry.kind == ToolFinished.kind]
    stage.claim(
        "the log contains the intent to run the tool, and no outcome",
        holds=len(started) == 1 and not finished,
    )
    stage.claim(f"the line is in {NOTEBOOK}", holds=lines_in(play.notebook) == 1)
    state = await play.store.backend.state(play.session.id)
    stage.claim("the turn is still open", holds=state.open_turn is not None)
    context = await play.session.context()
    stage.claim("the history is valid for a model", holds=is_answered(context))


async def resume(play: Play, head: int) -> None:
    """Resume the turn in this process, answer the question about the tool call, and finish."""
    stage = play.stage
    async with runtime_of(play) as runtime:
        chat = await runtime.resume(play.session.id)
        assert chat.turn is not None
        async with aclosing(aiter(chat.turn)) as events:
            async for event in events:
                if (asked := question_in(event)) is not None:
                    await _answer(play, asked)
        reply = await chat.turn
    stage.say(f"the model: “{reply.text}”")
    entries = await play.store.backend.entries(play.session.id, after=head)
    runs = sum(entry.kind == ToolStarted.kind for entry in entries)
    stage.claim(
        "the side effect happened exactly once", holds=lines_in(play.notebook) == 1 and runs == 1
    )
    state = await play.store.backend.state(play.session.id)
    stage.claim(
        "the turn ended with an answer", holds=reply.end == "stop" and state.open_turn is None
    )


async def _answer(play: Play, asked: Asked) -> None:
    """Check whether the side effect happened, and answer the question as a person would."""
    play.stage.say(asked.question.text)
    count = lines_in(play.notebook)
    choice, found = ("done", "has the line") if count else ("retry", "does not have the line")
    play.stage.say(f"{NOTEBOOK} {found}, so the answer is: {choice}")
    await play.session.answer(asked.id, choice, by=getpass.getuser(), note=f"{NOTEBOOK} {found}")


def is_answered(context: Context) -> bool:
    """Whether every tool call of `context` has its result in the next message."""
    messages = [each.message for each in context.messages]
    for message, following in zip_longest(messages, messages[1:]):
        calls = {call.id for call in message.tool_calls}
        if not calls:
            continue
        parts = following.parts if following is not None else ()
        if {part.call_id for part in parts if isinstance(part, ToolResultPart)} != calls:
            return False
    return not messages or messages[0].role == "user"
