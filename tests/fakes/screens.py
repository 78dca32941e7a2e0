"""The terminal chat without a terminal: tests send keys and read the screen as text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from textual._compositor import Compositor
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.geometry import Region
from textual.pilot import Pilot
from textual.widget import Widget

from perdure.apps.chat.history import Drafts
from perdure.apps.chat.session import AnswerOptions, Cast
from perdure.apps.tui.program import ChatProgram
from perdure.apps.wiring import chat_agent
from perdure.client.store import Store
from perdure.models.scenario_yaml import read_scenario
from perdure.tools.permissions import Permissions

PATIENCE_S = 60


def answering_in(
    store: Store, scenario: str | None = None, permissions: Permissions | None = None
) -> AnswerOptions:
    """Return chats of `store` with a scripted model, created as by ``perdure chat``."""
    acted = None if scenario is None else read_scenario(scenario, name="acted")
    model = "scripted:echo" if acted is None else None
    agent = chat_agent(model or "scripted:acted", permissions=permissions)
    return AnswerOptions(store, model=model, scenario=acted, cast=Cast(agent))


@dataclass
class Seen:
    """A running chat, whose screen a test can read."""

    program: ChatProgram
    pilot: Pilot[Any]

    @property
    def screen(self) -> str:
        """The text that the terminal shows."""
        screen = self.program.screen
        compositor = screen._compositor  # pyright: ignore[reportPrivateUsage] - a terminal gets it
        strips = compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)

    @property
    def transcript(self) -> str:
        """Return all lines of the transcript, including those outside the visible area."""
        return "\n".join(map(text_of, self.program.transcript.children))

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds` is true."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while not holds():
            assert self.program.failure is None, self.program.failure
            assert asyncio.get_running_loop().time() < deadline, self.screen
            await self.pilot.pause(0.02)

    async def shows(self, *texts: str) -> None:
        """Wait until the transcript or the screen contains all of `texts`."""
        for text in texts:
            await self.until(lambda text=text: text in _joined(self.transcript, self.screen))

    async def type(self, text: str) -> None:
        """Send `text` from the text field."""
        composer = self.program.input.composer
        await self.until(lambda: composer.has_focus)
        composer.show_text(text)
        await self.pilot.pause()
        composer.submit()
        await self.pause()

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            await self.pilot.press(key)
        await self.pause()

    async def idle(self) -> None:
        """Wait until all input is processed, no turn runs and all output is shown."""
        await self.until(lambda: not self._is_working)
        chat = self.program.conversation.chat
        await self.until(lambda: chat is None or not chat.is_running)
        await asyncio.wait_for(self.program.shown.teller.queue.join(), PATIENCE_S)
        await self.pause()

    async def pause(self) -> None:
        """Wait until all input is processed, then render what changed."""
        await self.pilot.pause()
        self.render()

    def render(self) -> None:
        """Render what changed since the last call."""
        program: Any = self.program
        if program.is_running and program.screen_stack:
            screens = program._background_screens
            render_update(program.screen._compositor, screen_stack=screens)

    @property
    def _is_working(self) -> bool:
        """Whether a task runs besides the one that shows the output."""
        tasks = self.program.workers
        return any(each.group != "told" and not each.is_finished for each in tasks)


def _joined(*texts: str) -> str:
    """Return `texts` without the line breaks of the screen."""
    return " ".join(" ".join(texts).split())


def text_of(widget: Widget) -> str:
    """Return the text of `widget` and of its children."""
    strips = widget.render_lines(Region(0, 0, widget.size.width, widget.size.height))
    own = "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)
    return "\n".join([own, *map(text_of, widget.children)])


class SharedRules(Stylesheet):
    """Caches parsed CSS rules, because parsing takes a sixth of the time to start a chat.

    The rules depend only on the source and on the variables.
    """

    parsed: ClassVar[dict[object, list[RuleSet]]] = {}

    def _parse_rules(self, css: str, *origin: Any, **options: Any) -> list[RuleSet]:
        variables = tuple(sorted(self._variables.items()))
        key = (css, origin, tuple(sorted(options.items())), variables)
        if key not in self.parsed:
            self.parsed[key] = super()._parse_rules(css, *origin, **options)
        return self.parsed[key]


render_update: Any = vars(Compositor)["render_update"]


def skip_update(compositor: Compositor, *options: object, **named: object) -> None:
    """Render no update.

    Textual would render 60 updates per second, for a terminal that does not exist. So many updates
    would take a quarter of the time of the tests. `Seen.render` renders the regions that have
    changed.
    """
    del compositor, options, named


@asynccontextmanager
async def chatting(
    store: Store,
    folder: Path,
    *,
    scenario: str | None = None,
    session: str | None = None,
    size: tuple[int, int] = (80, 24),
    permissions: Permissions | None = None,
    drafts: Drafts | None = None,
    terminal: int | None = None,
) -> AsyncGenerator[Seen]:
    """Run a chat in `folder` for the duration of the block.

    `terminal` is a file descriptor; the chat reads from it only text that was typed during the
    start.
    """
    answering = answering_in(store, scenario, permissions)
    program = ChatProgram(answering, session, folder, drafts=drafts, terminal=terminal)
    program.stylesheet = SharedRules(variables=program.get_css_variables())
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Compositor, "render_update", skip_update)
            async with answering.runtime, program.run_test(size=size, notifications=True) as pilot:
                seen = Seen(program, pilot)
                await seen.until(lambda: bool(program.transcript.children))
                yield seen
                seen.render()
    finally:
        await answering.aclose()
    assert program.failure is None, program.failure
