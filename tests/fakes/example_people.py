"""A simulated person who finishes an example project's flow on the command line despite kills.

The person starts the flow, answers its questions and resumes it. After a command was killed, the
person checks its result, and repeats the command if it had no effect.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

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


class Stand(msgspec.Struct, frozen=True):
    """The state of an example before the command `words`: a copy of its folder, and its counts.

    `commits` and `writes` are the numbers since the previous kill.
    """

    copy: Path
    words: tuple[str, ...] = RUN
    commits: int = 0
    writes: int = 0

    def is_before(self, kill: Kill) -> bool:
        """Return whether `kill` happens later than this state."""
        return (self.commits if kill.thing == "commit" else self.writes) < kill.n


class Person:
    """Runs the example `name` in `folder` on the command line, from `stand` or from the beginning.

    The `kills` happen one after the other. The `n` of a kill, and the numbers `commits` and
    `writes`, are counted from the previous kill.
    """

    def __init__(
        self,
        commands: Commands,
        folder: Path,
        name: str,
        kills: Sequence[Kill] = (),
        stand: Stand | None = None,
    ) -> None:
        stand = stand or Stand(EXAMPLES / name)
        self.folder = folder
        self.kills = list(kills)
        self.commits = stand.commits
        self.writes = stand.writes
        self._commands = commands
        self._name = name
        self._words = stand.words
        shutil.copytree(stand.copy, folder)

    def finish(self, copies: Path | None = None) -> list[Stand]:
        """Run the flow to its end; return the state before each command, if `copies` is given."""
        stands: list[Stand] = []
        for number in range(MOST_COMMANDS):
            if copies:
                copy = Path(shutil.copytree(self.folder, copies / str(number)))
                stands.append(Stand(copy, self._words, self.commits, self.writes))
            words = self._next(self._words, self._done(self._words))
            if words is None:
                return stands
            self._words = words
        raise AssertionError(f"the flow did not end: {self._words}")

    def look(self, *words: str) -> Any:
        """Return the JSON output of ``perdure`` with the arguments `words`."""
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
        """Return the next kill, with `n` counted from the start of the next command."""
        if not self.kills:
            return None
        kill = self.kills[0]
        passed = self.commits if kill.thing == "commit" else self.writes
        return Kill(kill.n - passed, kill.moment, kill.thing)

    def _next(self, words: tuple[str, ...], ended: Ended) -> tuple[str, ...] | None:
        """The person's next action after this result of `words`; None at the end."""
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
