"""A workflow document as a value: nodes, edges, and metadata.

Session exports write workflow documents and flows run them, so this module is in a layer below
exports and flows. This module does not execute documents. The code that runs a document checks
whether each `agent_ref` names an agent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

SCHEMA_VERSION = "1.0"

KEBAB = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
"""The pattern that every id of a workflow or an agent matches as a whole."""


InputType = Literal["string", "number", "boolean", "file_path", "code_diff"]
INPUT_TYPES: tuple[InputType, ...] = get_args(InputType)

NAME = re.compile(r"[A-Za-z0-9_-]+")
"""The pattern that every name of an input or a context entry matches as a whole."""


class RunInput(msgspec.Struct, frozen=True):
    """An input of a run. `default` is used if the input is missing."""

    name: str
    type: InputType = "string"
    required: bool = False
    default: str | int | float | bool | None = None
    description: str | None = None


class ContextEntry(msgspec.Struct, frozen=True):
    """The template for ``{{ctx.key}}``, filled from the inputs at the start of a run."""

    key: str
    value: str


class InputNode(msgspec.Struct, frozen=True, tag="input"):
    """The start node of a workflow, which receives the input of a run."""

    id: str


class AgentNode(msgspec.Struct, frozen=True, tag="agent"):
    """One turn of an agent.

    `prompt_template` is the prompt of the node; None means that the node's input is the prompt.

    `tools` restricts the agent's tools; an empty `tools` does not restrict them.
    """

    id: str
    agent_ref: str
    prompt_template: str | None = None
    tools: tuple[str, ...] = ()


class OutputNode(msgspec.Struct, frozen=True, tag="output"):
    """The end node of a workflow, which receives the result of a run."""

    id: str


WorkflowNode = InputNode | AgentNode | OutputNode


class Edge(msgspec.Struct, frozen=True):
    """A connection of two nodes: the node `target` follows the node `source`.

    In the file, the keys are ``to`` for the target and ``from`` for the source.
    """

    source: str
    target: str


class Workflow(msgspec.Struct, frozen=True):
    """A workflow document.

    Shape: node ids are unique, edges reference node ids, and `nodes` has at least one node.
    `agents` are the agents that the document defines, each with an ``id`` and the fields of an
    agent file. The names in `inputs` and in `context` are unique. Without `inputs`, a run accepts
    any texts as inputs. `metadata` is any JSON object.
    """

    id: str
    nodes: tuple[WorkflowNode, ...]
    edges: tuple[Edge, ...] = ()
    name: str | None = None
    agents: tuple[Mapping[str, object], ...] = ()
    metadata: Mapping[str, object] = {}
    inputs: tuple[RunInput, ...] = ()
    context: tuple[ContextEntry, ...] = ()
