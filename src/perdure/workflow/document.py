"""A workflow document as a value: nodes, edges between them, and what its author noted.

Exports of sessions write such documents and flows run them, so they lie below both. Nothing here
says what running means; whether an `agent_ref` names an agent is for whoever runs it to find out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

SCHEMA_VERSION = "1.0"

KEBAB = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
"""What ids of workflows and agents look like, as a whole."""


InputType = Literal["string", "number", "boolean", "file_path", "code_diff"]
INPUT_TYPES: tuple[InputType, ...] = get_args(InputType)

NAME = re.compile(r"[A-Za-z0-9_-]+")
"""What inputs and entries of the context are called, as a whole."""


class RunInput(msgspec.Struct, frozen=True):
    """Something a run is given. Where it is not, `default` is taken, if there is one."""

    name: str
    type: InputType = "string"
    required: bool = False
    default: str | int | float | bool | None = None
    description: str | None = None


class ContextEntry(msgspec.Struct, frozen=True):
    """What ``{{ctx.key}}`` stands for: a template over the inputs, filled when a run begins."""

    key: str
    value: str


class InputNode(msgspec.Struct, frozen=True, tag="input"):
    """Where the flow's input comes in."""

    id: str


class AgentNode(msgspec.Struct, frozen=True, tag="agent"):
    """One turn of an agent. `prompt_template` is what it is told, None: nothing but its input.

    `tools` narrows the agent's tools; empty keeps all of them.
    """

    id: str
    agent_ref: str
    prompt_template: str | None = None
    tools: tuple[str, ...] = ()


class OutputNode(msgspec.Struct, frozen=True, tag="output"):
    """Where the flow's result comes out."""

    id: str


WorkflowNode = InputNode | AgentNode | OutputNode


class Edge(msgspec.Struct, frozen=True):
    """The node `target` follows the node `source`. In the file they are ``to`` and ``from``."""

    source: str
    target: str


class Workflow(msgspec.Struct, frozen=True):
    """A workflow.

    Shape: node ids are unique, edges name nodes, `nodes` has at least one. `agents` are those
    defined in the document itself, each with an ``id``, in the fields of an agent file;
    `inputs` and `context` have unique names; without `inputs` a run takes any texts. `metadata` is
    any JSON object.
    """

    id: str
    nodes: tuple[WorkflowNode, ...]
    edges: tuple[Edge, ...] = ()
    name: str | None = None
    agents: tuple[Mapping[str, object], ...] = ()
    metadata: Mapping[str, object] = {}
    inputs: tuple[RunInput, ...] = ()
    context: tuple[ContextEntry, ...] = ()
