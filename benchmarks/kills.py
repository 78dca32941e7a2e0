"""Goal: after ``kill -9`` no acknowledged turn is lost, and no turn is stored partially."""

from __future__ import annotations

import random

from benchmarks.child import ENTRIES_OF_A_TAGGED_TURN, Job
from benchmarks.children import started
from benchmarks.figures import Figure, Run, create, opened
from perdure.session.ids import StreamId

KILLS = 20
MOST_TURNS = 60


async def measure(run: Run) -> list[Figure]:
    """Measure processes that append turns, each killed after a random number of turns."""
    path = run.folder / "kills.db"
    chance = random.Random(run.seed)
    store = await opened(path, "full")
    lost = torn = 0
    for number in range(KILLS):
        stream = StreamId(f"killed-{number}")
        await create(store, stream)
        told = await _killed(str(path), stream, chance.randint(1, MOST_TURNS))
        said = [entry.message.text for entry in await store.entries(stream) if entry.message]
        whole, rest = divmod(len(said), ENTRIES_OF_A_TAGGED_TURN)
        lost += max(0, told - whole)
        torn += rest > 0
    problems = len((await store.maintenance.verify()).problems)
    await store.close()
    claim = f"{KILLS} writers killed with kill -9"
    return [
        Figure(claim, "acknowledged turns lost", lost, "", limit=0),
        Figure(claim, "turns stored partially", torn, "", limit=0),
        Figure(claim, "problems found by verify", problems, "", limit=0),
    ]


async def _killed(path: str, stream: StreamId, after: int) -> int:
    """Return the number of turns that a child had acknowledged when it was killed."""
    child = await started(
        Job(
            kind="store",
            where=path,
            writers=((stream, stream),),
            count=10_000,
            seed=0,
            is_tagged=True,
            is_announced=True,
        )
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(b"go\n")
    for _ in range(after):
        await child.stdout.readline()
    child.kill()
    rest = await child.stdout.read()
    await child.wait()
    return after + rest.count(b"\n")
