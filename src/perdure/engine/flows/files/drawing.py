"""The graph of a flow as its files draw it now, and whether the flow can go on with it.

The record's ``workflow.yaml`` may be edited while the flow runs. It counts from the moment it is
seen, unless it cannot be used: then the flow goes on with the graph it has.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from perdure.bounds.files import read_regular_text
from perdure.engine.flows.files.readings import DOCS
from perdure.engine.flows.files.workflow_file import WorkflowFile, graph_of, read_workflow
from perdure.engine.flows.rules.structure import faults_of_edit
from perdure.errors import InvalidWorkflow
from perdure.session.flows.graph import Graph
from perdure.session.flows.run import FlowState

WORKFLOW = "workflow.yaml"
CANONICAL = f"{DOCS}/workflow/main.yaml"

_Stamp = tuple[int, int, int] | None


class Drawn(msgspec.Struct, frozen=True):
    """What files draw: a `graph`, or what is wrong with them."""

    graph: Graph | None
    faults: tuple[str, ...] = ()


class Drawing:
    """The workflow files of one flow. Reads them again only when they changed."""

    def __init__(self, record: Path, project: Path) -> None:
        self._record = record / WORKFLOW
        self._canonical = project / CANONICAL
        self._stamps: tuple[_Stamp, _Stamp] | None = None
        self._drawn = Drawn(None)

    def now(self) -> Drawn:
        """What the files draw now. Blocks for as long as it takes to look at two small files."""
        stamps = (_stamp(self._record), _stamp(self._canonical))
        if stamps != self._stamps:
            self._drawn = self._read()
            self._stamps = stamps
        return self._drawn

    def change(self, state: FlowState) -> Drawn:
        """What becomes of the flow's graph: another one, or what keeps it from that.

        Shape: neither when the files draw the graph it has.
        """
        drawn = self.now()
        if drawn.graph is None or drawn.graph == state.graph:
            return Drawn(None, drawn.faults)
        faults = faults_of_edit(state.run, state.graph, drawn.graph)
        return Drawn(None, tuple(faults)) if faults else drawn

    def _read(self) -> Drawn:
        try:
            text = read_regular_text(self._record)
            return Drawn(drawn_graph(text, self._record.name, self._canonical))
        except InvalidWorkflow as error:
            return Drawn(None, error.faults)
        except (OSError, UnicodeDecodeError) as error:
            return Drawn(None, (f"{WORKFLOW} cannot be read: {error}",))


def drawn_graph(text: str, name: str, canonical: Path) -> Graph:
    """The graph of the workflow `text`, called `name`, above the file `canonical` if that is there.

    Raises: InvalidWorkflow; OSError.
    """
    below: WorkflowFile | None = None
    if canonical.is_file():
        below = read_workflow(read_regular_text(canonical), CANONICAL)
    return graph_of(read_workflow(text, name), name, below)


def _stamp(path: Path) -> _Stamp:
    try:
        status = os.stat(path)  # noqa: PTH116 - a Path would be made into text again each time
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
