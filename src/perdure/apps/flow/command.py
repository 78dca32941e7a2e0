"""``perdure flow``: the commands of the group, in the order of the help page."""

from __future__ import annotations

from perdure.apps.cli.surface.groups import Group

_PLACES = {
    "init": "perdure.apps.flow.init:init",
    "validate": "perdure.apps.flow.validation:validate",
    "run": "perdure.apps.flow.run:begin",
    "resume": "perdure.apps.flow.run:resume",
    "list": "perdure.apps.flow.flow_rows:list_flows",
    "show": "perdure.apps.flow.views:show_flow",
    "graph": "perdure.apps.flow.views:graph",
    "reply": "perdure.apps.flow.decisions:reply",
    "approve": "perdure.apps.flow.decisions:approve",
    "stop": "perdure.apps.flow.decisions:stop",
    "consent": "perdure.apps.flow.decisions:consent",
    "configure": "perdure.apps.flow.decisions:configure",
    "compact": "perdure.apps.flow.compaction:compact",
    "improve": "perdure.apps.flow.decisions:improve",
    "feedback": "perdure.apps.flow.decisions:feedback",
    "export": "perdure.apps.flow.exports:export",
    "delete": "perdure.apps.flow.exports:delete",
}

flow = Group(_PLACES, no_args_is_help=True)


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
