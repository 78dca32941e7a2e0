"""Read YAML as a workflow document, strictly: every error is reported with its line.

This module checks only the document's form. The code that runs the document checks its graph,
templates and agents, using the line numbers from this module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from perdure.errors import InvalidWorkflow
from perdure.workflow.document import (
    INPUT_TYPES,
    KEBAB,
    NAME,
    SCHEMA_VERSION,
    AgentNode,
    ContextEntry,
    Edge,
    InputNode,
    InputType,
    OutputNode,
    RunInput,
    Workflow,
    WorkflowNode,
)
from perdure.yaml.nodes import YamlNode, YamlReader

AGENT_KEYS = (
    *("id", "name", "description", "model", "provider", "system_prompt"),
    *("temperature", "max_tokens", "reasoning_effort", "input_schema", "output_schema"),
    *("tools", "mcp_servers", "memory", "retry", "fallback_chain", "budget"),
    *("limits", "compaction", "delegation", "on_interrupt", "queue_mode", "restart_on_cut"),
    *("history", "on_pasted", "question_expires_s"),
    *("first_byte_timeout_s", "stream_idle_timeout_s"),
)
"""Keys of an agent in a workflow: the keys of an agent file except the permissions."""

_ROOT_KEYS = ("schema_version", "workflow")
_KEYS = ("id", "name", "inputs", "context", "agents", "nodes", "edges", "metadata")
_TYPES = ("input", "agent", "output")
_OTHER_TYPES = ("human_gate", "condition", "transform", "parallel", "merge")
"""Node types that the format defines but perdure cannot run."""
_INPUT_KEYS = ("name", "type", "required", "default", "description")
_OF_TYPE: Mapping[InputType, tuple[str, ...]] = {
    "string": ("str",),
    "number": ("int", "float"),
    "boolean": ("bool",),
    "file_path": ("str",),
    "code_diff": ("str",),
}
"""Maps each type of input to the YAML types that its default can have."""
_AT_THE_ROOT = re.compile(r"^schema_version[ \t]*:", re.MULTILINE)
_AGENT_NODE_KEYS = ("id", "type", "agent_ref", "prompt_template", "tools")


class Lines(msgspec.Struct, frozen=True):
    """The line numbers of the parts of a workflow in its file.

    Shape: each mapping except `agents` maps names or ids to line numbers, which start at 1.
    `nodes`, `prompts` and `tools` map node ids to lines; the lines of `tools` are in the order of
    the node's tools. `agents` maps agent ids to the YAML nodes of the agents' definitions. Parts
    that did not come from a file have no lines.
    """

    nodes: Mapping[str, int] = {}
    prompts: Mapping[str, int] = {}
    tools: Mapping[str, tuple[int, ...]] = {}
    edges: tuple[int, ...] = ()
    inputs: Mapping[str, int] = {}
    context: Mapping[str, int] = {}
    agents: Mapping[str, YamlNode] = {}


class LocatedWorkflow(msgspec.Struct, frozen=True):
    """A workflow with its line numbers; `text` is the text of the whole file.

    Shape: `name` is the workflow's name in error messages. If the workflow did not come from a
    file, `text` is None.
    """

    workflow: Workflow
    lines: Lines = Lines()
    name: str = "the workflow"
    text: str | None = None


def is_document(text: str) -> bool:
    """Return whether `text` is a workflow document and not a workflow of roles.

    The result is True even if the document contains errors.
    """
    if _AT_THE_ROOT.search(text):
        return True
    root = YamlReader().root(text) if text.lstrip().startswith("{") else None
    return root is not None and any(key.text == "schema_version" for key, _ in root.pairs)


def parse(text: str, name: str = "the workflow") -> Workflow:
    """Parse the workflow in `text`; error messages call it `name`.

    Raises: InvalidWorkflow with every error and its line.
    """
    return parse_located(text, name).workflow


def parse_located(text: str, name: str = "the workflow") -> LocatedWorkflow:
    """Parse the workflow in `text`, and return it with its line numbers.

    Raises: the errors of `parse`.
    """
    reader = _Reader()
    root = reader.nodes.root(text)
    found = None if root is None else reader.document(root)
    if found is None or reader.nodes.faults:
        raise InvalidWorkflow(name, reader.nodes.faults)
    return msgspec.structs.replace(found, name=name, text=text)


class _Reader:
    def __init__(self) -> None:
        self.nodes = YamlReader()

    def document(self, root: YamlNode) -> LocatedWorkflow:
        """Read the workflow from `root`, the root node of the file."""
        fields = self.nodes.mapping(root, _ROOT_KEYS, _ROOT_KEYS)
        if "schema_version" in fields:
            self.nodes.choice(fields["schema_version"], (SCHEMA_VERSION,))
        if "workflow" not in fields:
            return LocatedWorkflow(Workflow("", ()))
        return self._workflow(fields["workflow"])

    def _workflow(self, node: YamlNode) -> LocatedWorkflow:
        fields = self.nodes.mapping(node, _KEYS, ("id", "nodes", "edges"))
        nodes = [self._node(each) for each in self._items(fields, "nodes")]
        if "nodes" in fields and not nodes:
            self.nodes.fault(fields["nodes"], "a workflow needs at least one node")
        self._unique(self._items(fields, "nodes"), [each.id for each in nodes], "node")
        known = {each.id for each in nodes}
        edges = [self._edge(each, known) for each in self._items(fields, "edges")]
        agents = [self._agent(each) for each in self._items(fields, "agents")]
        self._unique(
            self._items(fields, "agents"), [str(agent.get("id", "")) for agent in agents], "agent"
        )
        inputs = [self._input(each) for each in self._items(fields, "inputs")]
        self._unique(self._items(fields, "inputs"), [each.name for each in inputs], "input")
        context = [self._entry(each) for each in self._items(fields, "context")]
        self._unique(self._items(fields, "context"), [each.key for each in context], "entry")
        workflow = Workflow(
            id=self._kebab(fields["id"]) if "id" in fields else "",
            nodes=tuple(nodes),
            edges=tuple(edges),
            name=self.nodes.text(fields["name"]) if "name" in fields else None,
            agents=tuple(agents),
            metadata=self._object(fields["metadata"]) if "metadata" in fields else {},
            inputs=tuple(inputs),
            context=tuple(context),
        )
        return LocatedWorkflow(workflow, _lines(workflow, fields))

    def _node(self, node: YamlNode) -> WorkflowNode:
        loose = {key.text: value for key, value in node.pairs}
        kind = loose["type"].text if "type" in loose else ""
        known = _AGENT_NODE_KEYS if kind == "agent" else ("id", "type")
        if kind in _OTHER_TYPES:
            known = tuple(loose)  # the unsupported type is the only error to report
        required = ("id", "type", "agent_ref") if kind == "agent" else ("id", "type")
        fields = self.nodes.mapping(node, known, required)
        id = self.nodes.text(fields["id"]) if "id" in fields else ""
        if kind in _OTHER_TYPES:
            what = f"perdure does not run {kind!r} nodes: it runs {', '.join(_TYPES)}"
            self.nodes.fault(loose["type"], what)
        elif "type" in fields:
            kind = self.nodes.choice(fields["type"], _TYPES)
        if kind != "agent":
            return OutputNode(id) if kind == "output" else InputNode(id)
        prompt = fields.get("prompt_template")
        return AgentNode(
            id=id,
            agent_ref=self._kebab(fields["agent_ref"]) if "agent_ref" in fields else "",
            prompt_template=None if prompt is None else self.nodes.text(prompt),
            tools=tuple(self.nodes.text(each) for each in self._items(fields, "tools")),
        )

    def _edge(self, node: YamlNode, known: set[str]) -> Edge:
        fields = self.nodes.mapping(node, ("from", "to"), ("from", "to"))
        for end in fields.values():
            if self.nodes.text(end) not in known:
                self.nodes.fault(end, f"there is no node {end.text!r}")
        ends = [fields[end].text if end in fields else "" for end in ("from", "to")]
        return Edge(*ends)

    def _agent(self, node: YamlNode) -> Mapping[str, object]:
        fields = self.nodes.mapping(node, AGENT_KEYS, ("id",))
        if "id" in fields:
            self._kebab(fields["id"])
        return {key: self.nodes.data(value) for key, value in fields.items()}

    def _input(self, node: YamlNode) -> RunInput:
        fields = self.nodes.mapping(node, _INPUT_KEYS, ("name",))
        named, type = fields.get("type"), "string"
        if named is not None and named.text == "secret":
            what = "perdure takes no 'secret' inputs: tools refer to secrets by name"
            self.nodes.fault(named, what)
        elif named is not None:
            type = self.nodes.choice(named, INPUT_TYPES)
        type = cast("InputType", type)
        default, told = fields.get("default"), fields.get("description")
        if default is not None and default.kind not in _OF_TYPE[type]:
            self.nodes.fault(default, f"the default of a {type} cannot be this")
            default = None
        return RunInput(
            name=self._name(fields, "name"),
            type=type,
            required="required" in fields and self.nodes.boolean(fields["required"]),
            default=None if default is None else cast("str | float", self.nodes.data(default)),
            description=None if told is None else self.nodes.text(told),
        )

    def _entry(self, node: YamlNode) -> ContextEntry:
        fields = self.nodes.mapping(node, ("key", "value"), ("key", "value"))
        value = self.nodes.text(fields["value"]) if "value" in fields else ""
        return ContextEntry(self._name(fields, "key"), value)

    def _name(self, fields: Mapping[str, YamlNode], key: str) -> str:
        text = self.nodes.text(fields[key]) if key in fields else ""
        if key in fields and fields[key].kind == "str" and not NAME.fullmatch(text):
            self.nodes.fault(fields[key], f"{text!r} is no name: use letters, digits, - and _")
        return text

    def _items(self, fields: Mapping[str, YamlNode], key: str) -> Sequence[YamlNode]:
        return self.nodes.items(fields[key]) if key in fields else ()

    def _object(self, node: YamlNode) -> Mapping[str, object]:
        if node.kind != "map":
            self.nodes.fault(node, "expected a mapping")
            return {}
        return cast("dict[str, object]", self.nodes.data(node))

    def _kebab(self, node: YamlNode) -> str:
        text = self.nodes.text(node)
        if node.kind == "str" and not KEBAB.fullmatch(text):
            self.nodes.fault(node, f"{text!r} is not an id: use a-z, 0-9 and single hyphens")
        return text

    def _unique(self, nodes: Sequence[YamlNode], ids: Sequence[str], what: str) -> None:
        seen: set[str] = set()
        for node, id in zip(nodes, ids, strict=True):
            if id in seen:
                self.nodes.fault(node, f"a second {what} is called {id!r}")
            seen.add(id)


def _lines(workflow: Workflow, fields: Mapping[str, YamlNode]) -> Lines:
    """Return the line numbers of a workflow.

    Shape: `fields` are the top-level keys of the file with their nodes.
    """
    items = {key: node.items for key, node in fields.items() if node.kind == "seq"}
    ids = [node.id for node in workflow.nodes]
    fields_of = [{key.text: value for key, value in node.pairs} for node in items.get("nodes", ())]
    located = list(zip(ids, fields_of, strict=False))
    prompts = {
        id: each["prompt_template"].line for id, each in located if "prompt_template" in each
    }
    tools = {
        id: tuple(tool.line for tool in each["tools"].items)
        for id, each in located
        if "tools" in each
    }
    return Lines(
        nodes=_at(ids, items.get("nodes", ())),
        prompts=prompts,
        tools=tools,
        edges=tuple(node.line for node in items.get("edges", ())),
        inputs=_at([each.name for each in workflow.inputs], items.get("inputs", ())),
        context=_at([each.key for each in workflow.context], items.get("context", ())),
        agents={
            str(agent.get("id", "")): node
            for agent, node in zip(workflow.agents, items.get("agents", ()), strict=False)
        },
    )


def _at(names: Sequence[str], nodes: Sequence[YamlNode]) -> dict[str, int]:
    return {name: node.line for name, node in zip(names, nodes, strict=False)}
