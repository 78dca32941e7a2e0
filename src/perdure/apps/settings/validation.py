"""Reports the errors of a settings file with their lines.

Python loads this module only if a settings file has errors.
"""

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
    """Return the errors of `data`.

    If `data` has no errors and `is_project` is True, report each key that a project may not set.
    `data` was read from the TOML `text`. `person_file` is the user's settings file, which may set
    all keys.
    """
    nodes = YamlReader()
    root = nodes_of(data, text)
    read_as(nodes, root, Settings)
    for key, node in _servers(root):
        filed = read_as(YamlReader(), node, FiledServer)
        if filed is not None:  # otherwise its errors are already reported
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
    """Return the invalid MCP servers in `data` with reasons; `data` comes from the TOML `text`."""
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
    """Return the tables ``[mcp.servers.NAME]``, each with the node that contains its name."""
    for table, fields in root.pairs:
        for key, servers in fields.pairs:
            if (table.text, key.text) == ("mcp", "servers"):
                yield from servers.pairs


def _check_server(nodes: YamlReader, key: YamlNode, node: YamlNode, filed: FiledServer) -> None:
    """Report the errors of the server `filed` with the name `key`, with their lines."""
    try:
        filed.server(key.text)
    except PerdureError as error:
        places = {name.text: value for name, value in node.pairs}
        nodes.fault(places.get(str(getattr(error, "argument", None)), key), str(error))
