"""``perdure flow export`` and ``delete``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from perdure.apps.cli.exits import PathExists, UsageMistake
from perdure.apps.cli.options import YesOption, named_path
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.flow.flow_access import flows_of
from perdure.apps.flow.options import ByOption, FlowArgument, person
from perdure.apps.terminal.output import count_of, remark
from perdure.apps.terminal.text import safe
from perdure.engine.flows.documents.document_flow import workflow_text_of
from perdure.interop.a_society.exports import export_flow
from perdure.interop.a_society.folder import FORMAT
from perdure.stores.maintenance.file_lock import alone_in

WORKFLOW = "record/workflow.yaml"
"""Path of the workflow in an exported folder; this file makes the folder importable anywhere."""


async def export(
    flow: FlowArgument,
    *,
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="DIR", parser=named_path, help="The folder to create."
        ),
    ],
    format: Annotated[
        Literal["a-society"], typer.Option(metavar="FORMAT", help="What to write.")
    ] = FORMAT,
    is_forced: Annotated[bool, typer.Option("--force", help="Replace files in DIR.")] = False,
    common: CommonOptions,
) -> None:
    """Export a flow as a folder: its state, its record, and the transcript and feed of each role.

    The record is the workflow, the artifacts and the findings. `perdure import DIR --format
    a-society` reads the folder, on any machine.

    Examples:
        perdure flow export 20260527T14 -o flows/trip

    Exit codes:
        4  a file exists, and --force is not given
    """
    async with common.existing_store() as opened, flows_of(opened) as flows:
        id = await opened.find(flow, only="flow")
        exported = await export_flow(opened.backend, id)
        state = await flows.look(id).state()
    files = exported.files
    files[WORKFLOW] = workflow_text_of(state).encode()
    _write(output, files, is_forced=is_forced)
    for told in exported.left_out:
        remark(f"not exported: {safe(told)}")
    data = {"flow": id, "format": format, "folder": str(output), "files": sorted(files)}
    common.show(data, f"wrote {count_of(len(files), 'file')} to {output}")


def _write(folder: Path, files: dict[str, bytes], *, is_forced: bool) -> None:
    """Write all `files` into `folder`.

    Raises: PathExists if one of the files exists and `is_forced` is False, or if another export
    uses `folder`; then no file is written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with alone_in(folder):
            for path in files:
                if (folder / path).exists() and not is_forced:
                    raise PathExists(str(folder / path))
            for path, content in files.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content)
    except BlockingIOError as error:
        raise PathExists(str(folder)) from error


async def delete(
    flow: FlowArgument,
    *,
    is_with_record: Annotated[
        bool, typer.Option("--with-record", help="Remove the record folder too.")
    ] = False,
    is_sure: YesOption = False,
    by: ByOption = None,
    common: CommonOptions,
) -> None:
    """Permanently delete a flow with the sessions of its roles and selectors.

    Without --with-record, the record folder is not deleted. With --with-record, the record folder
    is removed with all files in it; if it contains the workspace or another flow uses it, the
    command fails. A flow is not deleted while one of its roles is at work.

    Examples:
        perdure flow delete 20260527T14 --yes
        perdure flow delete 20260527T14 --with-record --yes

    Exit codes:
        2  not confirmed
        4  a role is at work, or the record folder cannot be removed
    """
    async with common.existing_store() as opened, flows_of(opened) as flows:
        id = await opened.find(flow, only="flow")
        folder = (await flows.look(id).state()).run.record_folder_path
        if not is_sure:
            _confirm(f"flow {id} and {folder}" if is_with_record else f"flow {id}")
        record = "remove" if is_with_record else "keep"
        gone = await flows.delete(id, record=record, by=person(by))
    left = gone.record if gone.is_record_left else None
    lines = [f"deleted {id} and {count_of(len(gone.sessions), 'session')}"]
    if gone.is_record_left:
        lines.append(f"its record folder was not deleted: {safe(str(gone.record))}")
    elif is_with_record:
        lines.append(f"and its record folder: {safe(str(gone.record))}")
    common.show({"flow": id, "sessions": len(gone.sessions), "record_left": left}, lines)


def _confirm(what: str) -> None:
    if not sys.stdin.isatty():
        raise UsageMistake("deleting cannot be undone: add --yes to confirm")
    if not typer.confirm(f"Delete {what} for good?", err=True):
        raise UsageMistake("nothing was deleted")
