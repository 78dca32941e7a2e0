"""A settings file with faults: every one of them, with its line. Loaded only when there are any."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perdure.apps.settings.document import OF_PROJECTS, Settings
from perdure.apps.settings.lines import nodes_of
from perdure.models.yaml_nodes import NodeReader
from perdure.workflow.typed import read_as


def faults_in(
    data: Mapping[str, object], text: str, person_file: Path, *, is_project: bool
) -> tuple[str, ...]:
    """What is wrong with `data`, read from the TOML `text`; of a project also what it may not set.

    `person_file` is where a person may set that.
    """
    nodes = NodeReader()
    root = nodes_of(data, text)
    read_as(nodes, root, Settings)
    if is_project and not nodes.faults:
        for table, fields in root.pairs:
            for key, _ in fields.pairs:
                if f"{table.text}.{key.text}" not in OF_PROJECTS:
                    nodes.fault(
                        key,
                        f"a project cannot set {table.text}.{key.text}: what is cloned must not "
                        f"choose for you; set it in {person_file}",
                    )
    return nodes.faults
