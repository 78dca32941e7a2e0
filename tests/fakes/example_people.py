"""Somebody who brings an example project's flow to its end on the command line, whatever is killed.

They do what a person does: begin the flow, answer what it says it waits for, go on with it; and
where a command was killed they look what became of it, and do it again if it was not done.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fakes.mortal_commands import Commands, Ended, Kill

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "flows"
FLOW = "f"
ACTING = ("--scenario", "scenario.yaml")
RUN = (
    *("flow", "run", "workflow.yaml", *ACTING, "--record", "record"),
    *("--consent", "partial-access", "--id", FLOW, "--json"),
)
RESUME = ("flow", "resume", FLOW, *ACTING, "--json")
NOT_FOUND = 3
REFUSED = 4
MOST_COMMANDS = 40

IMPROVEMENT = {"single-owner": "none", "review": "graph-based", "fan-out": "none"}


class Person:
    """Who runs the example `name`, of which a copy is made in `folder`.

    `kills` happen one after the other, each counted from the last; `commits` and `writes` are those
    since the last kill.
    """

    def __init__(
        self, commands: Commands, folder: Path, name: str, kills: Sequence[Kill] = ()
    ) -> None:
        self.folder = folder
        self.kills = list(kills)
        self.commits = 0
        self.writes = 0
        self._commands = commands
        self._name = name
        shutil.copytree(EXAMPLES / name, folder)

    def finish(self) -> None:
        """Bring the flow to its end."""
        words: tuple[str, ...] | None = RUN
        for _ in range(MOST_COMMANDS):
            words = self._next(words, self._done(words))
            if words is None:
                return
        raise AssertionError(f"the flow did not end: {words}")

    def look(self, *words: str) -> Any:
        """What ``perdure`` tells with `words`, as JSON."""
        ended = self._commands.run((*words, "--json"), self.folder)
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    def _done(self, words: tuple[str, ...]) -> Ended:
        kill = self._due()
        ended = self._commands.run(words, self.folder, kill)
        if ended.is_killed:
            assert kill is not None
            del self.kills[0]
            self.commits = self.writes = 0
        else:
            self.commits += ended.commits
            self.writes += ended.writes
        return ended

    def _due(self) -> Kill | None:
        """The next kill, as the next command counts."""
        if not self.kills:
            return None
        kill = self.kills[0]
        passed = self.commits if kill.thing == "commit" else self.writes
        return Kill(kill.n - passed, kill.moment, kill.thing)

    def _next(self, words: tuple[str, ...], ended: Ended) -> tuple[str, ...] | None:
        """What a person does after `words` ended so; None once nothing is left to do."""
        is_answer = words not in (RUN, RESUME)
        if ended.is_killed:
            return words if is_answer else RESUME
        if is_answer:
            # Refused: the one that was killed had been heard.
            assert ended.code in (0, REFUSED), ended.err
            return RESUME
        if ended.code == NOT_FOUND:
            return RUN
        assert ended.code in (0, 1), ended.err
        told = json.loads(ended.out)
        if told["status"] == "completed":
            return None
        return self._answer(told["waiting"][0]) if told["waiting"] else RESUME

    def _answer(self, waiting: dict[str, Any]) -> tuple[str, ...]:
        match waiting["topic"]:
            case "prompt-human":
                return ("flow", "reply", FLOW, "By train, please.", "--to", waiting["target"])
            case "improvement-choice":
                return ("flow", "improve", FLOW, IMPROVEMENT[self._name])
            case "feedback-consent":
                return ("flow", "feedback", FLOW, "deny")
            case "unknown_outcome":
                # A tool was killed while it ran: writing the same file again does no harm.
                return ("inbox", "answer", waiting["question"], "retry")
            case topic:
                raise AssertionError(f"{topic}: {waiting['text']}")
