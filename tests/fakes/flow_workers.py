"""The flow for tests of workers: each role writes a note and hands it over.

Each test has only one flow, because all flows use the workspace `$WORKER_FOLDER`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from perdure import Agent, Runtime, Store, tool
from perdure.models.scenario import Scenario
from perdure.models.scripted import ScriptedModel
from tests.fakes.mortal_flows import GRAPHS, RECORD, RULES, Kind
from tests.fakes.worker_program import FOLDER, note

DEADLY = "deadly"
"""While the folder has a file of this name, each note kills its process."""


def held(folder: Path, name: str) -> Path:
    """Return the path of the file that delays the note `name` as long as the file exists."""
    return folder / f"held {name}"


@tool(effect="write", on_unknown="retry")
async def write_note(name: str) -> str:
    """Write a note into the record folder. An existing note must have the same text."""
    folder = Path(os.environ[FOLDER])
    note(name)
    if (folder / DEADLY).exists():
        os.kill(os.getpid(), signal.SIGKILL)
    while held(folder, name).exists():  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.02)
    (folder / RECORD / name).write_text(f"what {name} says")
    return f"wrote {name}"


@tool(effect="write", on_unknown="retry", needs_approval=True, name="write_note")
async def asking_note(name: str) -> str:
    """Write a note into the record folder if a person approves it."""
    note(name)
    (Path(os.environ[FOLDER]) / RECORD / name).write_text(f"what {name} says")
    return f"wrote {name}"


def roles(kind: Kind, asking: Sequence[str] = ()) -> list[Agent]:
    """Return the agents of the flow `kind`; the agents of the roles in `asking` ask a person."""
    return [
        Agent(role, model="scripted:flow", tools=[asking_note if role in asking else write_note])
        for role in GRAPHS[kind].roles
    ]


def model(kind: Kind, store: Store) -> ScriptedModel:
    """Return the model of the flow `kind`."""
    scenario = Scenario(name="flow", rules=tuple(RULES[kind]))
    return ScriptedModel(scenario, clock=store.outside.clock)


def runtime(store: Store) -> Runtime:
    """Return the runtime of a worker with the roles of the flow "three", which includes "two"."""
    return Runtime(store, roles("three"), models=model("three", store))


def two(store: Store) -> Runtime:
    """Return the runtime of a worker with the roles of the flow "two"."""
    return Runtime(store, roles("two"), models=model("two", store))


def asking(store: Store) -> Runtime:
    """Return the runtime of a worker whose developer asks a person before it writes."""
    return Runtime(store, roles("two", ("developer",)), models=model("two", store))
