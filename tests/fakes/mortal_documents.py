"""A workflow document with a tool, a fan-out and a join, and ways to die in the middle of it.

The crash tests run the document in child processes, which kill themselves, and in their own
process, which takes over. The answers of the document's agents depend on the request alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import msgspec

import perdure
from perdure.client.store import Store
from perdure.models.scenario import CallTools, Reply, Say, Scenario, ScriptedCall, When
from perdure.models.scripted import ScriptedModel
from perdure.session.flows.run import FlowState
from perdure.stores.session_store import SessionStore
from tests.fakes.two_tools import Death, MortalStore, Reaper

FLOW = "the-run"
INPUTS = {"topic": "tides", "file": "notes.md"}

DOCUMENT = """\
schema_version: "1.0"
workflow:
  id: mortal
  inputs:
    - {name: topic, required: true}
    - {name: file, type: file_path, required: true}
  context:
    - {key: style, value: "as {{inputs.file | read_file}}"}
  nodes:
    - {id: input, type: input}
    - id: plan
      type: agent
      agent_ref: writer
      prompt_template: "PLAN {{inputs.topic}}, {{ctx.style}}"
    - {id: left, type: agent, agent_ref: writer, prompt_template: "LEFT"}
    - id: right
      type: agent
      agent_ref: checker
      prompt_template: 'RIGHT of {{run.outputs["plan"]}} {{inputs.file | read_file}}'
    - id: join
      type: agent
      agent_ref: checker
      prompt_template: "JOIN {{run.outputs.left}} {{run.outputs.right}}"
    - {id: end, type: agent, agent_ref: checker, prompt_template: END}
    - {id: output, type: output}
    - {id: output-2, type: output}
  edges:
    - {from: input, to: plan}
    - {from: plan, to: left}
    - {from: plan, to: right}
    - {from: left, to: join}
    - {from: right, to: join}
    - {from: join, to: end}
    - {from: end, to: output}
    - {from: plan, to: output-2}
    - {from: left, to: output-2}
"""


class DocumentPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the document: its folder, and the point at which its process dies."""

    folder: str
    death: Death = Death()

    @property
    def address(self) -> str:
        """The address of the store."""
        return f"sqlite:///{self.folder}/log.db"


def _answer(word: str, text: str) -> Reply:
    return Reply(when=When(user_contains=word), steps=(Say(text),))


RULES: tuple[Reply, ...] = (
    _answer("LEFT", "one side"),
    _answer("RIGHT", "the other"),
    _answer("JOIN", "both"),
    _answer("END", "done"),
    Reply(
        when=When(user_contains="PLAN", after="user"),
        steps=(CallTools((ScriptedCall("write_note", '{"name": "a.md"}'),)),),
    ),
    _answer("PLAN", "a sketch of {{inputs.topic}}"),
)


async def finished(plan: DocumentPlan, store: Store, told: int | None = None) -> FlowState:
    """Start or resume the flow and run it to its end; report each commit to `told`."""
    reaper = Reaper(plan.death)
    store.backend = cast("SessionStore", MortalStore(store.backend, reaper, told))
    lay_out(plan)
    async with perdure.Flows(_runtime(plan, store), on_interrupt="retry") as flows:
        flow = await _begun(plan, flows)
        await flow.run()
        return await flow.state()


def lay_out(plan: DocumentPlan) -> None:
    """Write the input files, unless they exist: another process might be reading them."""
    files = {"notes.md": "{{inputs.topic}} as it stands", "w.workflow.yaml": DOCUMENT}
    for name, text in files.items():
        if not (Path(plan.folder) / name).exists():
            (Path(plan.folder) / name).write_text(text)


async def begun(plan: DocumentPlan, store: Store) -> None:
    """Start the flow, and leave the run to other processes."""
    lay_out(plan)
    async with perdure.Flows(_runtime(plan, store)) as flows:
        await _begun(plan, flows)


async def _begun(plan: DocumentPlan, flows: perdure.Flows) -> perdure.Flow:
    try:
        return await flows.open(FLOW)
    except perdure.errors.SessionNotFound:
        return await flows.start(
            Path(plan.folder) / "w.workflow.yaml",
            id=FLOW,
            workspace=plan.folder,
            record_folder="record",
            project="p",
            inputs=INPUTS,
        )


def _runtime(plan: DocumentPlan, store: Store) -> perdure.Runtime:
    @perdure.tool(effect="write", on_unknown="retry")
    async def write_note(name: str) -> str:
        """Write a note. An existing note must have the same text."""
        (Path(plan.folder) / name).write_text(f"what {name} says")
        return f"wrote {name}"

    models = ScriptedModel(Scenario(name="doc", rules=RULES), clock=store.outside.clock)
    agents = [
        perdure.Agent("writer", model="scripted:doc", tools=[write_note]),
        perdure.Agent("checker", model="scripted:doc", instructions="Work {{ctx.style}}."),
    ]
    return perdure.Runtime(store, agents, models=models)
