"""The published schemas accept exactly the files that perdure accepts."""

from __future__ import annotations

import importlib
import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from ruamel.yaml import YAML

from perdure.apps.settings.document import OF_PROJECTS
from perdure.apps.settings.validation import faults_in
from perdure.apps.setup.command import set_up
from perdure.client.agents.agent import Agent
from perdure.client.agents.files.reader import agent_of_text
from perdure.client.agents.files.writer import agent_text
from perdure.errors import InvalidAgentFile, InvalidWorkflow
from perdure.workflow.reader import parse
from scripts import make_schemas

HEAD = "id: helper\nmodel: scripted:echo\nsystem_prompt: x\n"
FLOW = (
    'schema_version: "1.0"\nworkflow:\n  id: a\n  nodes:\n    - {id: i, type: input}\n'
    "    - {id: t, type: agent, agent_ref: helper, tools: [read_file]}\n"
    "  edges: [{from: i, to: t}]\n"
)


def fits(name: str, data: object) -> bool:
    return bool(validator(name).is_valid(data))


@cache
def validator(name: str) -> Any:
    validators: Any = importlib.import_module("jsonschema")
    schema: Any = make_schemas.schemas()[name]
    validators.Draft202012Validator.check_schema(schema)
    return validators.Draft202012Validator(schema)


def of_yaml(text: str) -> Any:
    reader: Any = YAML(typ="safe", pure=True)
    return reader.load(text)


def test_published_schemas_match_code() -> None:
    assert make_schemas.main(["--check"]) == 0


class Part(msgspec.Struct, frozen=True):
    size: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1


class Whole(msgspec.Struct, frozen=True):
    parts: tuple[Part, ...] = ()


def test_schema_rejects_unknown_keys() -> None:
    schema = make_schemas.plain(Whole, "Wholes", "whole")
    assert schema["title"] == "Wholes"
    assert schema["$defs"]["Whole"]["additionalProperties"] is False
    assert schema["$defs"]["Part"]["properties"]["size"]["maximum"] == 9


@pytest.mark.parametrize(
    "text",
    [
        HEAD,
        HEAD + "memory: none\nretry: {max: 2}\nmcp_servers: [a, {ref: b}, {name: c, command: d}]\n",
        HEAD + "memory: {type: window, window_size: 2}\n",
        HEAD + "permissions: {scope: sandboxed, allowed_commands: [ls]}\nlimits: {max_turns: 3}\n",
        agent_text(Agent("a", model="openai:x", tools=["read_file"], fallbacks=["google:y"])),
    ],
)
def test_valid_agent_files_match_schema(text: str) -> None:
    agent_of_text(text)
    assert fits("agent.schema.json", of_yaml(text))


@pytest.mark.parametrize(
    "text",
    [
        "id: helper\n",
        "id: A b\nmodel: scripted:echo\nsystem_prompt: x\n",
        HEAD + "foo: 1\n",
        HEAD + "temperature: 3\n",
        HEAD + "tools: read_file\n",
        HEAD + "memory: {type: all}\n",
        HEAD + "memory: {window_size: 2}\n",
        HEAD + "input_schema: {}\n",
        HEAD + "retry: {max: 0}\n",
        HEAD + "retry: {max: 1, retry_on: [x]}\n",
        HEAD + "permissions: {scope: all}\n",
        HEAD + "permissions: {scoop: full}\n",
        HEAD + "fallback_chain: [{provider: openai}]\n",
    ],
)
def test_agent_files_with_a_fault_do_not_match_schema(text: str) -> None:
    with pytest.raises(InvalidAgentFile):
        agent_of_text(text)
    assert not fits("agent.schema.json", of_yaml(text))


@pytest.mark.parametrize(
    ("text", "is_persons", "is_projects"),
    [
        ("", True, True),
        ('[chat]\nmodel = "openai:x"\n[store]\naddress = "memory:"\n', True, False),
        ('[chat]\nturn_cap = 3\nfs_scope = "sandboxed"\n[store]\nnamespace = "a"\n', True, True),
        ('[models.prices."a:b"]\ninput = 1\noutput = 2.5\n', True, False),
        ("[chat]\nturn_cap = 0\n", False, False),
        ("[chat]\nfoo = 1\n", False, False),
        ("[x]\n", False, False),
        ("[store]\nnamespace = 5\n", False, False),
    ],
)
def test_valid_settings_match_schema(text: str, is_persons: bool, is_projects: bool) -> None:
    data = tomllib.loads(text)
    for name, is_project, is_right in (
        ("config.schema.json", False, is_persons),
        ("project-config.schema.json", True, is_projects),
    ):
        assert fits(name, data) == is_right
        assert (faults_in(data, text, Path("x"), is_project=is_project) == ()) == is_right


def test_schema_of_project_settings_contains_no_defaults() -> None:
    tables: Any = make_schemas.schemas()["project-config.schema.json"]["$defs"]
    for key in OF_PROJECTS:
        table, name = key.split(".")
        place = tables[f"{table.capitalize()}Settings"]["properties"][name]
        assert "description" in place
        assert "default" not in place


def test_files_written_by_the_init_command_match_their_schemas(tmp_path: Path) -> None:
    config, _, agent = set_up(tmp_path, "tides")
    assert fits("project-config.schema.json", tomllib.loads((tmp_path / config.path).read_text()))
    assert fits("agent.schema.json", of_yaml((tmp_path / agent.path).read_text()))


@pytest.mark.parametrize(
    ("change", "is_right"),
    [
        (("id: a", "id: a"), True),
        (("id: a", "id: A"), False),
        (("type: input", "type: start"), False),
        (("{from: i", "{source: i"), False),
        (("agent_ref: helper, ", ""), False),
        (('"1.0"', '"2.0"'), False),
    ],
)
def test_valid_workflows_match_schema(change: tuple[str, str], is_right: bool) -> None:
    text = FLOW.replace(*change, 1)
    assert fits("workflow.schema.json", of_yaml(text)) == is_right
    if is_right:
        parse(text)
    else:
        with pytest.raises(InvalidWorkflow):
            parse(text)


def test_written_schema_text_decodes_to_the_same_schema() -> None:
    for schema in make_schemas.schemas().values():
        text = make_schemas.text_of(schema)
        assert msgspec.json.decode(text) == schema
