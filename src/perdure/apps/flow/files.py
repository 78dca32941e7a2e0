"""Reads the files of a workflow, and returns its graph or its errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.client.flows.documents.start import document_in
from perdure.engine.flows.documents.document_flow import graph_of
from perdure.engine.flows.files.graph_file import drawn_graph
from perdure.engine.flows.files.required_readings import DOCS, Library, project_folder
from perdure.engine.flows.files.skills import SkillShelf
from perdure.errors import ConfigError, InvalidWorkflow
from perdure.session.flows.graph import Graph, base_role
from perdure.stores.access.lazy_modules import Later
from perdure.tools.paths.project_files import read_workflow

if TYPE_CHECKING:
    from perdure.apps.flow.documents import start as document_start
else:
    document_start = Later("perdure.apps.flow.documents.start")


def graph_in(file: Path, workspace: Path, project: str | None = None) -> Graph:
    """Return the graph in `file`, merged with the project's canonical workflow.

    Raises: InvalidWorkflow, which lists every error with its line; ConfigError if the file cannot
    be read.
    """
    found = document_in(file)
    if found is not None:
        return graph_of(found.workflow)
    folder = _folder(workspace, project)
    return drawn_graph(read_workflow(file), file.name, folder)


def faults_of(
    file: Path, workspace: Path, project: str | None = None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the errors in `file` that prevent starting a flow, and the warnings."""
    try:
        found = document_in(file)
        if found is not None:
            return document_start.faults_in(found, workspace)
        graph = graph_in(file, workspace, project)
    except InvalidWorkflow as error:
        return error.faults, ()
    except ConfigError as error:
        return (str(error),), ()
    library = Library(_folder(workspace, project))
    missing = tuple(dict.fromkeys(_missing(graph, file.name, library)))
    return missing, tuple(_undescribed(graph, library))


def _undescribed(graph: Graph, library: Library) -> Iterator[str]:
    """Yield the roles that have no folder, if the project describes roles in folders."""
    roles = library.project / DOCS / "roles"
    for role in dict.fromkeys(base_role(role) for role in graph.roles) if roles.is_dir() else ():
        if not (roles / role).is_dir():
            place = f"{DOCS}/roles/{role}"
            yield (
                f"role {role!r} has no folder {place}: write {place}/main.md, or its prompt says "
                "nothing about it"
            )


def _missing(graph: Graph, name: str, library: Library) -> Iterator[str]:
    yield from library.faults()
    for role in dict.fromkeys(base_role(role) for role in graph.roles):
        try:
            library.of_role(role)
        except ConfigError as error:
            yield str(error)
    yield from SkillShelf(library.project).faults(base_role(role) for role in graph.roles)
    for node in graph.nodes:
        try:
            library.by_name(node.required_readings, f"{name}, node {node.id!r}")
        except ConfigError as error:
            yield str(error)


def _folder(workspace: Path, project: str | None) -> Path:
    return project_folder(workspace, project or workspace.absolute().name)
