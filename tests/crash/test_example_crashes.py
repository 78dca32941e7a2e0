"""``kill -9`` at every commit of the three example projects, run with the command line.

Each command is a process that runs exactly what ``perdure`` runs. After a kill, the simulated
person checks the result and runs another command. The result of the flow must not differ from a run
without a kill.

The commands before the killed command run only once, because the test copies the folder that they
left.
"""

from __future__ import annotations

import asyncio
import random
import re
import shutil
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import cast

import msgspec
import pytest

import perdure
from perdure.client.store import Store
from perdure.session.codec import body_of
from perdure.session.flows.kinds import HandoffMade, NodeClaimed
from perdure.session.ids import StreamId
from perdure.session.messages import Message, TextPart, ToolResultPart
from tests.fakes.example_people import FLOW, Person, Stand
from tests.fakes.mortal_commands import Commands, Kill, Moment
from tests.fakes.samples import ALL_ONLY, sampled

COMMITS = {"single-owner": 8, "review": 42, "fan-out": 23}
"""Number of commits of each example until its end, including those of the person's answers."""

WRITES = {"single-owner": 3, "review": 23, "fan-out": 12}
"""Number of separate writes: of leases and partial answers. A slow machine makes more of them."""

ROLES = {
    "single-owner": ("owner",),
    "review": ("owner", "developer", "reviewer"),
    "fan-out": ("owner", "scout_1", "scout_2"),
}
LATER = "review"
"""Only `make test-all` runs the longest example; `test_flow_crashes` kills a flow like it."""

MOMENTS: tuple[Moment, ...] = ("before", "after")
AT_COMMITS = [
    (name, Kill(n, moment))
    for name, count in COMMITS.items()
    for n in range(1, count + 1)
    for moment in MOMENTS
]
SEEDS = [(name, seed) for seed in range(4) for name in COMMITS]
HALF_WRITTEN = ".perdure"
"""Prefix of the hidden file that a killed tool was writing."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


class End(msgspec.Struct, frozen=True):
    """The end of a flow, without times, ids and folders, in the order of the logs."""

    run: object
    story: list[str]
    artifacts: dict[str, str]
    contexts: dict[str, list[object]]


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    with Commands() as serving:
        yield serving


class Whole(msgspec.Struct, frozen=True):
    """The result of an example that ran to its end without a kill."""

    folder: Path
    commits: int
    writes: int
    end: End
    stands: list[Stand]


@pytest.fixture(scope="module")
def whole(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Whole]:
    """Return a function that runs an example to its end without a kill, once."""

    @cache
    def run(name: str) -> Whole:
        folder = tmp_path_factory.mktemp("whole") / name
        person = Person(commands, folder, name)
        stands = person.finish(tmp_path_factory.mktemp("stands"))
        end = end_of(person, name)
        return Whole(folder, person.commits, person.writes, end, stands)

    return run


def end_of(person: Person, name: str) -> End:
    """Return the result of the flow that `person` ran."""
    run = person.look("flow", "show", FLOW)
    contexts, story = asyncio.run(_logs_of(person.folder, ROLES[name]))
    artifacts = {
        str(path.relative_to(person.folder)): path.read_text()
        for path in (person.folder / "record").rglob("*")
        if path.is_file() and path.suffix != HALF_WRITTEN
    }
    return End(_without_order(run, person.folder), story, artifacts, contexts)


async def _logs_of(folder: Path, roles: Sequence[str]) -> tuple[dict[str, list[object]], list[str]]:
    async with perdure.open(f"sqlite:///{folder}/store.db") as store:
        assert (await store.verify()).is_ok
        return {role: await _context(store, role, folder) for role in roles}, await _story(store)


async def _context(store: Store, role: str, folder: Path) -> list[object]:
    stream = StreamId(f"{FLOW}__{role}")
    assert (await store.backend.state(stream)).open_turn is None
    messages = await (await store.open(stream)).messages()
    return [_said(message, folder) for message in _joined(messages)]


def _joined(messages: Sequence[Message]) -> list[Message]:
    """Return `messages` with a cut answer and its continuation joined."""
    joined: list[Message] = []
    cut: list[Message] = []
    for message in messages:
        if message.stop_reason == "aborted":
            cut.append(message)
        else:
            parts = (*(part for each in cut for part in each.parts), *message.parts)
            joined.append(msgspec.structs.replace(message, parts=parts))
            cut = []
    return joined


def _said(message: Message, folder: Path) -> object:
    # What is handed over to a join comes in the order in which its sources ended.
    text = "".join(part.text for part in message.parts if isinstance(part, TextPart))
    lines = sorted(_TIME.sub("", text.replace(str(folder), "")).splitlines())
    calls = [(call.name, call.args) for call in message.tool_calls]
    parts = [part for part in message.parts if isinstance(part, ToolResultPart)]
    results = [(part.text, part.is_error) for part in parts]
    return message.role, lines, calls, results


async def _story(store: Store) -> list[str]:
    """Return every claim and handoff, repetitions included."""
    bodies = [body_of(entry) for entry in await store.backend.entries(StreamId(FLOW))]
    told = [body for body in bodies if isinstance(body, NodeClaimed | HandoffMade)]
    return sorted(repr(_without_order(msgspec.to_builtins(body), Path())) for body in told)


def _without_order(value: object, folder: Path) -> object:
    """Return `value` with sorted lists, without times and the path of `folder`."""
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {key: _without_order(item, folder) for key, item in sorted(fields.items())}
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        return sorted((_without_order(item, folder) for item in items), key=repr)
    if isinstance(value, str):
        return _TIME.sub("", value.replace(str(folder), "") if folder.name else value)
    return value


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=ALL_ONLY if name == LATER else ()) for name in COMMITS]
)
def test_planned_kills_cover_every_commit_of_each_example(
    whole: Callable[[str], Whole], name: str
) -> None:
    assert whole(name).commits == COMMITS[name]
    assert whole(name).writes >= WRITES[name]


def ends_as_it_would(commands: Commands, whole: Whole, name: str, *kills: Kill) -> None:
    """Kill the example `name` at each of `kills`; check that it ends like the run without a kill.

    The example runs in the folder of the run without a kill, because the store contains the path of
    the folder.
    """
    shutil.rmtree(whole.folder)
    stand = [each for each in whole.stands if each.is_before(kills[0])][-1]
    person = Person(commands, whole.folder, name, kills, stand)
    person.finish()
    assert not person.kills
    assert end_of(person, name) == whole.end


def _of_example(case: tuple[str, Kill]) -> Hashable:
    """Return the kind of a case of `AT_COMMITS`, or None for a case of `LATER`."""
    name, kill = case
    return None if name == LATER else (name, kill.moment)


@sampled(("name", "kill"), AT_COMMITS, kind=_of_example, each=1)
def test_example_killed_at_any_commit_ends_normally(
    commands: Commands, whole: Callable[[str], Whole], name: str, kill: Kill
) -> None:
    ends_as_it_would(commands, whole(name), name, kill)


@sampled(("name", "seed"), SEEDS, kind=type, each=1)
def test_example_killed_at_any_store_write_ends_normally(
    commands: Commands, whole: Callable[[str], Whole], name: str, seed: int
) -> None:
    chance = random.Random(f"{name} {seed}")
    kill = Kill(chance.randint(1, WRITES[name]), chance.choice(MOMENTS), "write")
    ends_as_it_would(commands, whole(name), name, kill)


@pytest.mark.all_only
@sampled(("name", "seed"), SEEDS, kind=type, each=1)
def test_example_killed_during_recovery_ends_normally(
    commands: Commands, whole: Callable[[str], Whole], name: str, seed: int
) -> None:
    chance = random.Random(f"{name} {seed}")
    first = Kill(chance.randint(1, COMMITS[name] - 4), chance.choice(MOMENTS))
    again = [Kill(chance.randint(1, 2), chance.choice(MOMENTS)) for _ in range(2)]
    ends_as_it_would(commands, whole(name), name, first, *again)
