"""``perdure flow validate``: report the errors of a workflow file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perdure.apps.cli.exits import DONE, USAGE
from perdure.apps.cli.options import JsonOption, named_path, require_file
from perdure.apps.flow.files import faults_of, graph_in
from perdure.apps.flow.options import FolderOption, ProjectOption
from perdure.apps.flow.picture.render import render
from perdure.apps.terminal.advice import with_commands
from perdure.apps.terminal.output import (
    count_of,
    out_style,
    remark,
    show,
    show_json,
    show_lines,
    width,
)
from perdure.apps.terminal.text import safe


def validate(
    file: Annotated[Path, typer.Argument(metavar="FILE", parser=named_path, help="The workflow.")],
    *,
    workspace: FolderOption = Path(),
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> int:
    """Report all errors of a workflow with their lines, or draw it if it has none.

    Also checks that the index of the project contains the texts that nodes and roles must read.

    Examples:
        perdure flow validate workflow.yaml

    Exit codes:
        2  errors were found
    """
    require_file(file, "the file of a workflow")
    found_faults, warnings = faults_of(file, workspace, project)
    faults = tuple(with_commands(fault) for fault in found_faults)
    if as_json:
        show_json({"ok": not faults, "faults": faults, "warnings": warnings})
        return USAGE if faults else DONE
    for warning in warnings:
        remark(safe(warning))
    if not faults:
        found = graph_in(file, workspace, project)
        show_lines(render(found, "text", out_style(), width()))
        return DONE
    show(f"{safe(str(file))}: {count_of(len(faults), 'error')}")
    show_lines(f"  {safe(fault)}" for fault in faults)
    return USAGE
