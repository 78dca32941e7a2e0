"""``perdure sessions resume``."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.apps.cli.exits import DONE, FAILED, INTERRUPTED, UsageMistake
from perdure.apps.cli.options import MOST, ScenarioOption
from perdure.apps.cli.store_options import CommonOptions, named_session
from perdure.apps.terminal.output import out_style, show, show_json
from perdure.apps.terminal.style import Meaning
from perdure.apps.terminal.text import one_line
from perdure.stores.access.lazy_modules import Later

if TYPE_CHECKING:
    from perdure.apps.chat import interrupted
else:
    interrupted = Later("perdure.apps.chat.interrupted")

_MEANINGS: dict[str, Meaning] = {"completed": "good", "waiting": "warning", "failed": "bad"}
_CELLS = 200
"""Maximum width of a printed answer or question.

An error is printed in full, because an error says what to do.
"""


async def resume(
    sessions: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="The sessions; or use --all.")
    ] = None,
    *,
    is_all: Annotated[
        bool, typer.Option("--all", help="Resume every session with an interrupted turn.")
    ] = False,
    scenario: ScenarioOption = None,
    common: CommonOptions,
) -> int:
    """Continue interrupted turns, one after another, and print how each ended.

    `perdure sessions list --interrupted` lists the interrupted turns, whose process was killed. A
    turn that asks for an approval keeps waiting: answer it with `perdure inbox`. To send more
    messages to a session, use `perdure chat --session ID`.

    Examples:
        perdure sessions resume --all
        perdure sessions resume 01jd

    Exit codes:
        1    a turn failed
        3    session not found
        130  stopped with Ctrl-C
    """
    if bool(sessions) == is_all:
        raise UsageMistake("name sessions, or add --all for every interrupted one")
    ends: set[str] = set()
    async with common.existing_store() as opened:
        named = [await named_session(opened, each) for each in sessions or ()]
        async with aclosing(interrupted.resume_turns(opened, named, scenario)) as resumed:
            async for end in resumed:
                ends.add(end.ending)
                _tell(end, as_json=common.as_json)
    if not ends and not common.as_json:
        show("No turn is interrupted.")
    if "stopped" in ends:
        return INTERRUPTED
    return FAILED if "failed" in ends else DONE


def _tell(end: interrupted.ResumedTurn, *, as_json: bool) -> None:
    if as_json:
        show_json(end, is_flushed=True)
        return
    style = out_style()
    cells = MOST if end.ending == "failed" else _CELLS
    ending = style.paint(end.ending, _MEANINGS.get(end.ending, "plain"))
    show(f"{style.paint(end.session, 'strong')}  {ending}  {one_line(end.detail, cells)}".rstrip())
