"""Read the graph that a flow's files define now, and check whether the flow can use it.

People and agents are allowed to edit the record's ``workflow.yaml`` while the flow runs. An edit of
a workflow file applies as soon as the flow reads the file. If an edit is invalid, the flow
continues with its current graph.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from perdure.engine.flows.files.required_readings import DOCS
from perdure.engine.flows.files.workflow_file import WorkflowFile, graph_of, read_workflow
from perdure.engine.flows.files.workflow_text import workflow_text
from perdure.engine.flows.rules.structure import faults_of_edit
from perdure.errors import ConfigError, InvalidWorkflow
from perdure.session.flows.graph import Graph
from perdure.session.flows.run import FlowState
from perdure.session.flows.start_arguments import require_session_ids
from perdure.session.ids import StreamId
from perdure.tools.paths.project_files import is_there, text_inside

WORKFLOW = "workflow.yaml"
CANONICAL = f"{DOCS}/workflow/main.yaml"

_Stamp = tuple[int, int, int] | None


class Drawn(msgspec.Struct, frozen=True):
    """The result of reading the files: a `graph`, or the faults in the files."""

    graph: Graph | None
    faults: tuple[str, ...] = ()


class GraphFile:
    """Reads the graph of one flow from the flow's workflow files.

    The files are read again only if they changed.
    """

    def __init__(self, record: Path, project: Path) -> None:
        self._folder, self._project = record, project
        self._record = record / WORKFLOW
        self._canonical = project / CANONICAL
        self._stamps: tuple[_Stamp, _Stamp] | None = None
        self._drawn = Drawn(None)
        self._known: tuple[Graph, Graph] | None = None
        """The last graph that was read, and the flow's graph that equals it.

        These two graphs are compared only once.
        """

    def now(self, graph: Graph | None = None) -> Drawn:
        """Read the files, and return the result. The call blocks while it checks two files.

        If the workflow file in the record folder equals the text that perdure writes for `graph`,
        the file is not parsed, because parsing YAML takes a second for a thousand nodes.
        """
        stamps = (_stamp(self._record), _stamp(self._canonical))
        if stamps != self._stamps:
            self._drawn = self._read(graph)
            self._stamps = stamps
        return self._drawn

    def change(self, state: FlowState) -> Drawn:
        """Return the new graph for the flow, or the faults that prevent the change.

        Shape: the result has no graph and no faults if the files define the flow's current graph.
        """
        drawn = self.now(state.graph)
        if drawn.graph is None or self._is_known(drawn.graph, state.graph):
            return Drawn(None, drawn.faults)
        faults = faults_of_edit(state.run, state.graph, drawn.graph)
        try:
            require_session_ids(StreamId(state.run.flow_id), drawn.graph.roles)
        except ConfigError as error:
            faults.append(str(error))
        return Drawn(None, tuple(faults)) if faults else drawn

    def _is_known(self, drawn: Graph, graph: Graph) -> bool:
        known = self._known
        if known is not None and known[0] is drawn and known[1] is graph:
            return True
        if drawn != graph:
            return False
        self._known = (drawn, graph)
        return True

    def _read(self, graph: Graph | None) -> Drawn:
        try:
            text = text_inside(self._folder, WORKFLOW, record=self._folder)
            is_alone = not is_there(self._project, CANONICAL)
            if graph is not None and is_alone and text == workflow_text(graph):
                return Drawn(graph)
            return Drawn(drawn_graph(text, WORKFLOW, self._project))
        except InvalidWorkflow as error:
            return Drawn(None, error.faults)
        except (ConfigError, UnicodeDecodeError) as error:
            return Drawn(None, (f"{WORKFLOW} cannot be read: {error}",))


def drawn_graph(text: str, name: str, project: Path | None) -> Graph:
    """Return the graph in the content `text` of the file `name`.

    Fields that the nodes lack come from the workflow file in the folder `project`.

    Raises: InvalidWorkflow if a file is not a valid workflow; ConfigError if the project's file
    cannot be read; UnicodeDecodeError if the project's file is not UTF-8.
    """
    below: WorkflowFile | None = None
    if project is not None and is_there(project, CANONICAL):
        below = read_workflow(text_inside(project, CANONICAL), CANONICAL)
    return graph_of(read_workflow(text, name), name, below)


def _stamp(path: Path) -> _Stamp:
    try:
        status = os.stat(path)  # noqa: PTH116 - a Path would be converted to text each time
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
