"""``perdure flow``: its commands, in the order of the help."""

from __future__ import annotations

import typer

from perdure.apps.flow.compaction import compact
from perdure.apps.flow.decisions import approve, configure, consent, feedback, improve, reply, stop
from perdure.apps.flow.exports import delete, export
from perdure.apps.flow.init import init
from perdure.apps.flow.run import begin, resume
from perdure.apps.flow.views import graph, list_flows, show_flow, validate

flow = typer.Typer(no_args_is_help=True)


@flow.callback()
def flow_itself() -> None:
    """Run workflows in which roles hand work to each other, with people in the loop.

    A workflow is a file; a flow is a run of it. A flow is stored as a log, so it continues after
    any crash.

    Examples:
        perdure flow init                        # create a project
        perdure flow run workflow.yaml --watch   # begin a flow
        perdure flow show 20260527T14            # its state, and what waits for you
    """


def add_to(program: typer.Typer) -> None:
    """Make ``perdure flow`` known."""
    flow.command("init")(init)
    flow.command("validate")(validate)
    flow.command("run")(begin)
    flow.command("resume")(resume)
    flow.command("list")(list_flows)
    flow.command("show")(show_flow)
    flow.command("graph")(graph)
    flow.command("reply")(reply)
    flow.command("approve")(approve)
    flow.command("stop")(stop)
    flow.command("consent")(consent)
    flow.command("configure")(configure)
    flow.command("compact")(compact)
    flow.command("improve")(improve)
    flow.command("feedback")(feedback)
    flow.command("export")(export)
    flow.command("delete")(delete)
    program.add_typer(flow, name="flow")
