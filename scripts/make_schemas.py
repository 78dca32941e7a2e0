"""Write the JSON Schemas in docs/schemas from the types into which files are parsed.

Run `python scripts/make_schemas.py` after a change to the valid contents of an agent file, a
settings file or a workflow; `--check` only reports whether the files are out of date (`make check`
uses it).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from perdure.apps.settings.document import OF_PROJECTS, Settings
from perdure.client.agents.files.document import AgentFile
from perdure.models.catalogue import PROVIDERS
from perdure.models.embedders.protocol import LOCAL, WIRES
from perdure.tools.builtin.catalogue import BUILTIN
from perdure.tools.mcp.servers import NAME as SERVER
from perdure.workflow.document import INPUT_TYPES, KEBAB, NAME, SCHEMA_VERSION
from perdure.workflow.reader import AGENT_KEYS
from perdure.yaml.typed_reader import INTEGER_BOUND

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "schemas"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
ID = "urn:perdure:schema:{}"
BY = "scripts/make_schemas.py"

PROVIDED = sorted({"scripted", "gemini", *PROVIDERS})
"""The valid values of `provider` in an agent file."""

OWN_MODEL = f"^({'|'.join(sorted({'scripted', *PROVIDERS}))}):\\s*\\S"
"""Pattern of a model name that contains its provider."""

EMBEDDER = (
    f"^({'|'.join(sorted({*LOCAL, *(n for n, p in PROVIDERS.items() if p.wire in WIRES)}))}):."
)
"""Pattern of the name of an embedder."""

MODEL = r"^[^\s:]+:\s*\S"
"""Pattern of a model name with any provider."""


def main(arguments: Sequence[str]) -> int:
    """Write the schemas, or with --check compare them; return the exit code."""
    is_check = "--check" in arguments
    texts = {name: text_of(schema) for name, schema in schemas().items()}
    stale = [name for name, text in texts.items() if text_in(FOLDER / name) != text]
    for name in stale:
        if is_check:
            print(f"docs/schemas/{name} is not what {BY} writes: run it")
        else:
            (FOLDER / name).write_text(texts[name], encoding="utf-8")
            print(f"wrote docs/schemas/{name}")
    return 1 if is_check and stale else 0


def schemas() -> dict[str, Mapping[str, Any]]:
    """Return every schema by the name of its file."""
    agent = with_models(with_servers(plain(AgentFile, "A perdure agent file", "agent")))
    _text_of(agent["$defs"]["FiledMemory"]["properties"]["embedder"])["pattern"] = EMBEDDER
    config = with_servers(plain(Settings, "A perdure settings file", "config"))
    chat: dict[str, Any] = config["$defs"]["ChatSettings"]["properties"]
    _text_of(chat["model"])["pattern"] = MODEL
    prices: dict[str, Any] = config["$defs"]["ModelSettings"]["properties"]["prices"]
    _object_of(prices)["propertyNames"] = {"pattern": MODEL}
    named: dict[str, Any] = config["$defs"]["McpSettings"]["properties"]["servers"]
    _object_of(named)["propertyNames"] = {"pattern": f"^{SERVER.pattern}$"}
    return {
        "agent.schema.json": with_seed_forms(agent),
        "config.schema.json": config,
        "project-config.schema.json": of_projects(config),
        "workflow.schema.json": workflow(),
    }


def plain(wanted: type[msgspec.Struct], title: str, id: str) -> dict[str, Any]:
    """Return the JSON Schema of the files that `yaml.typed_reader` reads as `wanted`.

    Shape: the schema follows draft 2020-12. It is plain JSON: tuples in defaults become lists. The
    schema omits rules that types cannot express (for example two settings that exclude each other).
    """
    schema = json.loads(json.dumps(msgspec.json.schema(wanted)))
    return closed({"$schema": DRAFT, "$id": ID.format(id), "title": title, **schema})


def closed(schema: Any) -> Any:
    """Return `schema` with limits for integers, and with objects that reject unlisted keys."""
    if isinstance(schema, list):
        return [closed(each) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    fields = {key: closed(value) for key, value in cast("dict[str, Any]", schema).items()}
    if fields.get("type") == "integer":
        fields = {"minimum": -INTEGER_BOUND, "maximum": INTEGER_BOUND - 1, **fields}
    if fields.get("type") == "object" and "properties" in fields:
        fields["additionalProperties"] = False
    return fields


def with_models(agent: dict[str, Any]) -> dict[str, Any]:
    """Return `agent` with the valid names of models, providers and built-in tools."""
    fields: dict[str, Any] = agent["$defs"]["AgentFile"]["properties"]
    fields["tools"] |= {"items": {"enum": sorted(BUILTIN)}, "uniqueItems": True}
    for name in ("AgentFile", "FiledFallback"):
        known: dict[str, Any] = agent["$defs"][name]
        has_provider = {"required": ["provider"], "properties": {"provider": text()}}
        known["properties"]["provider"]["anyOf"] = [{"enum": PROVIDED}, {"type": "null"}]
        known["if"] = has_provider
        known["then"] = {"properties": {"model": {"pattern": r"\S"}}}
        known["else"] = {"properties": {"model": {"pattern": OWN_MODEL}}}
    return agent


def with_servers(schema: dict[str, Any]) -> dict[str, Any]:
    """Return `schema` with both forms of an MCP server: a command or a URL, with their settings."""
    for name in ("McpServer", "FiledServer"):
        if name not in schema["$defs"]:
            continue
        server: dict[str, Any] = schema["$defs"][name]
        if "name" in server["properties"]:
            server["properties"]["name"]["pattern"] = f"^{SERVER.pattern}$"
        allowlist = server["properties"]["tools_allowlist"]
        for form in allowlist["anyOf"]:
            if form["type"] == "array":
                form["minItems"] = 1
        nothing: dict[str, Any] = {"type": "null"}
        server["oneOf"] = [
            {
                "required": ["command"],
                "properties": {
                    "command": text(),
                    "url": nothing,
                    "headers": {"maxProperties": 0},
                    "allow_local_endpoint": {"const": False},
                },
            },
            {
                "required": ["url"],
                "properties": {
                    "url": text(),
                    "command": nothing,
                    "args": {"maxItems": 0},
                    "env": {"maxProperties": 0},
                    "working_dir": nothing,
                },
            },
        ]
    return schema


def text() -> dict[str, Any]:
    """Return the schema of any text."""
    return {"type": "string"}


def _text_of(place: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of text from `place`, which allows text or null."""
    return next(form for form in place["anyOf"] if form["type"] == "string")


def _object_of(place: dict[str, Any]) -> dict[str, Any]:
    return next(form for form in place["anyOf"] if form["type"] == "object")


def with_seed_forms(agent: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `agent` with a second form of a server reference: ``{ref: name}`` besides ``name``."""
    schema = json.loads(json.dumps(agent))
    server: dict[str, Any] = schema["$defs"]["AgentFile"]["properties"]["mcp_servers"]
    reference = {
        "type": "object",
        "properties": {"ref": {"type": "string"}},
        "required": ["ref"],
        "additionalProperties": False,
    }
    server["items"]["anyOf"].append(reference)
    return schema


def of_projects(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `config` with only the keys that a project can set.

    The keys have no defaults, because the user's value applies if a project does not set the key.
    """
    schema = json.loads(json.dumps(config))
    schema["$id"] = ID.format("project-config")
    schema["title"] = "The settings file of a project"
    tables: dict[str, Any] = schema["$defs"]["Settings"]["properties"]
    for table, place in tables.items():
        name = next(iter(_references(place))).removeprefix("#/$defs/")
        properties: dict[str, Any] = schema["$defs"][name]["properties"]
        for key in list(properties):
            if f"{table}.{key}" not in OF_PROJECTS:
                del properties[key]
            else:
                properties[key].pop("default", None)
    return schema


def _references(place: Any) -> list[str]:
    """Return the references in `place`: its own ``$ref``, or those in its ``allOf``."""
    parts: list[Any] = [place, *place.get("allOf", ()), *place.get("anyOf", ())]
    return [part["$ref"] for part in parts if "$ref" in part]


def workflow() -> Mapping[str, Any]:
    """Return the schema of a workflow document; its agents are validated when they are bound."""
    text = {"type": "string"}
    kebab = {"type": "string", "pattern": f"^{KEBAB.pattern}$"}
    body = _object(
        {
            "id": kebab,
            "name": text,
            "inputs": _list(_input()),
            "context": _list(_object({"key": _name(), "value": text}, ["key", "value"])),
            "agents": _list(
                _object({key: kebab if key == "id" else {} for key in AGENT_KEYS}, ["id"])
            ),
            "nodes": {
                **_list({"oneOf": [_end("input"), _end("output"), _agent_node(kebab)]}),
                "minItems": 1,
            },
            "edges": _list(_object({"from": text, "to": text}, ["from", "to"])),
            "metadata": {"type": "object"},
        },
        ["id", "nodes", "edges"],
    )
    whole = _object(
        {"schema_version": {"const": SCHEMA_VERSION}, "workflow": body},
        ["schema_version", "workflow"],
    )
    return {
        "$schema": DRAFT,
        "$id": ID.format("workflow"),
        "title": "A perdure workflow",
        **whole,
    }


def _end(kind: str) -> dict[str, Any]:
    return _object({"id": {"type": "string"}, "type": {"const": kind}}, ["id", "type"])


def _name() -> dict[str, Any]:
    return {"type": "string", "pattern": f"^{NAME.pattern}$"}


def _input() -> dict[str, Any]:
    properties = {
        "name": _name(),
        "type": {"enum": list(INPUT_TYPES)},
        "required": {"type": "boolean"},
        "default": {"type": ["string", "number", "boolean"]},
        "description": {"type": "string"},
    }
    return _object(properties, ["name"])


def _agent_node(kebab: Mapping[str, Any]) -> dict[str, Any]:
    properties = {
        "id": {"type": "string"},
        "type": {"const": "agent"},
        "agent_ref": kebab,
        "prompt_template": {"type": "string"},
        "tools": _list({"type": "string"}),
    }
    return _object(properties, ["id", "type", "agent_ref"])


def _list(items: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _object(properties: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def text_of(schema: Mapping[str, Any]) -> str:
    """Return `schema` as the text of its file."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def text_in(file: Path) -> str | None:
    """Return the content of `file`; None if the file does not exist."""
    return file.read_text(encoding="utf-8") if file.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
