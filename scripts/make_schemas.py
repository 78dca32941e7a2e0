"""Write the JSON Schemas in docs/schemas from the types that files are read as.

Run `python scripts/make_schemas.py` after a change to what may stand in an agent file, a settings
file or a workflow; with `--check` it only says whether it has to be run (`make check` does).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perdure.apps.settings.document import OF_PROJECTS, Settings
from perdure.client.agents.files.document import AgentFile
from perdure.workflow.document import INPUT_TYPES, KEBAB, NAME, SCHEMA_VERSION
from perdure.workflow.reading import AGENT_KEYS
from perdure.workflow.typed import schema_of

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "schemas"
ID = "urn:perdure:schema:{}"
BY = "scripts/make_schemas.py"


def main(arguments: Sequence[str]) -> int:
    """Write the schemas, or with --check compare them; the exit code."""
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
    """Every schema by the name of its file."""
    agent = schema_of(AgentFile, "A perdure agent file", ID.format("agent"))
    config = schema_of(Settings, "A perdure settings file", ID.format("config"))
    config = json.loads(json.dumps(config))  # a default may be a tuple
    return {
        "agent.schema.json": with_seed_forms(agent),
        "config.schema.json": config,
        "project-config.schema.json": of_projects(config),
        "workflow.schema.json": workflow(),
    }


def with_seed_forms(agent: Mapping[str, Any]) -> Mapping[str, Any]:
    """`agent` with ``{ref: name}`` for a server, which is read as the name."""
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
    """`config` with the keys that a project may set, and no others."""
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
    return schema


def _references(place: Any) -> list[str]:
    """What `place`, a ``$ref`` or an ``allOf`` of one, refers to."""
    parts: list[Any] = [place, *place.get("allOf", ()), *place.get("anyOf", ())]
    return [part["$ref"] for part in parts if "$ref" in part]


def workflow() -> Mapping[str, Any]:
    """The schema of a workflow document; what its agents say is read when they are bound."""
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
        "$schema": "https://json-schema.org/draft/2020-12/schema",
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
    """`schema` as the text of its file."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def text_in(file: Path) -> str | None:
    """What is in `file`; None when it is not there."""
    return file.read_text(encoding="utf-8") if file.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
