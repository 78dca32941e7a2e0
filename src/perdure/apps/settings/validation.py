"""A settings file with faults: every one of them, with its line. Loaded only when there are any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from perdure.apps.settings.document import OF_PROJECTS, FiledServer, Settings
from perdure.apps.settings.lines import nodes_of
from perdure.errors import PerdureError
from perdure.yaml.nodes import YamlNode, YamlReader
from perdure.yaml.typed_reader import read_as


def faults_in(
    data: Mapping[str, object], text: str, person_file: Path, *, is_project: bool
) -> tuple[str, ...]:
    """What is wrong with `data`, read from the TOML `text`; of a project also what it may not set.

    `person_file` is where a person may set that.
    """
    nodes = YamlReader()
    root = nodes_of(data, text)
    read_as(nodes, root, Settings)
    for key, node in _servers(root):
        filed = read_as(YamlReader(), node, FiledServer)
        if filed is not None:  # else its faults are told already
            _check_server(nodes, key, node, filed)
    if is_project and not nodes.faults:
        for table, fields in root.pairs:
            for key, _ in fields.pairs:
                if f"{table.text}.{key.text}" not in OF_PROJECTS:
                    nodes.fault(
                        key,
                        f"a project cannot set {table.text}.{key.text}; set it in {person_file}",
                    )
    return nodes.faults


def faulty_servers(data: Mapping[str, object], text: str) -> dict[str, tuple[str, ...]]:
    """The MCP servers of `data`, read from the TOML `text`, that cannot be used, and why not."""
    found: dict[str, tuple[str, ...]] = {}
    for key, node in _servers(nodes_of(data, text)):
        nodes = YamlReader()
        filed = read_as(nodes, node, FiledServer)
        if filed is not None:
            _check_server(nodes, key, node, filed)
        if nodes.faults:
            found[key.text] = nodes.faults
    return found


def _servers(root: YamlNode) -> Iterator[tuple[YamlNode, YamlNode]]:
    """The tables ``[mcp.servers.NAME]``, each with the node of its name."""
    for table, fields in root.pairs:
        for key, servers in fields.pairs:
            if (table.text, key.text) == ("mcp", "servers"):
                yield from servers.pairs


def _check_server(nodes: YamlReader, key: YamlNode, node: YamlNode, filed: FiledServer) -> None:
    """Report what keeps the server `filed`, called `key`, from ever working, where it stands."""
    try:
        filed.server(key.text)
    except PerdureError as error:
        places = {name.text: value for name, value in node.pairs}
        nodes.fault(places.get(str(getattr(error, "argument", None)), key), str(error))
