"""The crash table of the design: ``kill -9`` of a real process at each point of a real turn."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

import perdure
from perdure.client.agents.session_usage import standing_of
from perdure.client.store import Store
from perdure.session.codec import body_of
from perdure.session.ledger import InterruptPolicy, Spending, UnknownPolicy
from perdure.session.ledger import ModelFinished as CallEnd
from perdure.session.messages import Message, ToolResultPart
from tests.crash.children import turn
from tests.fakes.forked import forked, preload, run_forked
from tests.fakes.provider_rules import all_problems
from tests.fakes.samples import FOR_LONG, rounds, sampled, with_larger
from tests.fakes.two_tools import ANSWER, SESSION, Death, Moment, Plan, finished

preload(turn.__name__)

COMMITS = 6
"""Number of commits: one creates the session, k + 3 = 5 belong to its turn of k = 2 tool calls."""

DEATHS: list[tuple[Moment, int]] = [
    *[("before_commit", n) for n in range(1, COMMITS + 1)],
    *[("after_commit", n) for n in range(1, COMMITS + 1)],
    *[("before_effect", n) for n in (1, 2)],
    *[("after_effect", n) for n in (1, 2)],
    ("stream", 1),
    ("stream", 2),
]
UNKNOWN: list[UnknownPolicy] = ["retry", "never", "ask"]
INTERRUPT: list[InterruptPolicy] = ["continue", "rollback", "ask"]


def killed(plan: Plan) -> list[tuple[int, str]]:
    """Run `plan` in a child until it dies; return the entries that it acknowledged."""
    done = run_forked(turn.run, plan)
    if done.code not in (0, -9):
        pytest.fail(done.err)
    assert (done.code == -9) == (plan.death.moment != "never")
    return [acknowledgement(line) for line in done.out.splitlines()]


def acknowledgement(line: bytes) -> tuple[int, str]:
    """Return seq and kind of an entry that a child reports as committed."""
    return msgspec.json.decode(line, type=tuple[int, str])


def effects(plan: Plan) -> Counter[str]:
    """Return how often each call took effect."""
    file = Path(plan.effects)
    lines = file.read_text().splitlines() if file.exists() else []
    return Counter(line.split()[0] for line in lines)


def results_in(messages: list[Message]) -> list[ToolResultPart]:
    """Return the tool results in `messages`, in order."""
    return [part for m in messages for part in m.parts if isinstance(part, ToolResultPart)]


async def is_sound(store: Store, acknowledged: list[tuple[int, str]]) -> None:
    """Check that acknowledged entries exist, hashes are valid, and all contexts are valid."""
    verification = await store.verify()
    assert verification.is_ok, verification.problems
    session = await store.open(SESSION)
    stored = {(entry.seq, entry.kind) async for entry in session.entries()}
    assert set(acknowledged) <= stored
    context = await session.context()
    assert all_problems([item.message for item in context.messages]) == []
    finished_calls = [b async for e in session.entries() if isinstance(b := body_of(e), CallEnd)]
    spent = Spending()
    for call in finished_calls:
        spent = spent.plus(call.usage)
    assert (await standing_of(store, SESSION)).spent == spent


def plan_in(folder: Path, **wanted: object) -> Plan:
    paths = {"database": str(folder / "log.db"), "effects": str(folder / "effects")}
    return msgspec.convert({**paths, **wanted}, Plan)


@sampled(
    ("death", "on_unknown"),
    [(death, policy) for policy in UNKNOWN for death in DEATHS],
    kind=lambda case: (case[0][0].partition("_")[2] or "stream", case[1]),
)
async def test_turn_killed_at_any_point_is_completed(
    tmp_path: Path, death: tuple[Moment, int], on_unknown: UnknownPolicy
) -> None:
    plan = plan_in(tmp_path, on_unknown=on_unknown, death={"moment": death[0], "n": death[1]})
    acknowledged = killed(plan)
    whole = msgspec.structs.replace(plan, death=Death())
    async with perdure.open(f"sqlite:///{plan.database}") as store:
        if acknowledged:
            await is_sound(store, acknowledged)
        chat = await finished(whole, store)
        await is_sound(store, acknowledged)
        messages = await chat.session.messages()
        assert messages[-1].text == ANSWER
        assert (await store.backend.state(chat.id)).open_turn is None
        assert sum(message.role == "user" for message in messages) == 1
        results = results_in(messages)
        assert [part.call_id for part in results] == ["c1", "c2"]
    counts = effects(plan)
    if on_unknown == "retry":
        assert len(counts) == 2
        assert all(1 <= count <= 2 for count in counts.values())
    else:
        assert all(count == 1 for count in counts.values())
        lost = sum(part.is_error for part in results)
        assert lost == (1 if death[0] in ("before_effect", "after_effect") else lost)
        assert lost <= 1
        assert len(counts) >= 2 - lost


@pytest.mark.parametrize("on_interrupt", INTERRUPT)
@pytest.mark.parametrize("n", [1, 2])
async def test_answer_interrupted_by_a_kill_follows_the_policy_of_its_turn(
    tmp_path: Path, on_interrupt: InterruptPolicy, n: int
) -> None:
    plan = plan_in(
        tmp_path, on_interrupt=on_interrupt, death={"moment": "stream", "n": n}, answer="continue"
    )
    acknowledged = killed(plan)
    whole = msgspec.structs.replace(plan, death=Death())
    async with perdure.open(f"sqlite:///{plan.database}") as store:
        chat = await finished(whole, store)
        await is_sound(store, acknowledged)
        kinds = [entry.kind async for entry in chat.session.entries()]
        assert "interrupted" in kinds
        path = await chat.session.path()
        if on_interrupt == "rollback":
            assert path == []
            assert kinds[-1] == "turn_finished"
            return
        assert ("question" in kinds) == (on_interrupt == "ask")
        assert [entry.kind for entry in path].count("custom_message") == 1
        partial = next(e.message for e in path if e.message and e.message.stop_reason == "aborted")
        assert partial.text
        # Cut in its second answer, the model continues what it had begun.
        begun = partial.text if n == 2 else ""
        assert begun + (await chat.session.messages())[-1].text == ANSWER
    assert all(count == 1 for count in effects(plan).values())


async def test_question_survives_crash_and_is_answered_by_other_process(
    tmp_path: Path,
) -> None:
    plan = plan_in(tmp_path, death={"moment": "after_effect", "n": 1})
    killed(plan)
    # The process that takes over dies too: right after it asked. It gets no chance to answer, which
    # it could do on a busy machine before its commit returns.
    asking = msgspec.structs.replace(plan, death=Death("after_commit", 1), answer=None)
    killed(asking)
    address = f"sqlite:///{plan.database}"
    async with perdure.open(address) as store:
        session = await store.open(SESSION)
        asked = await session.questions()
        assert [question.question.topic for question in asked] == ["unknown_outcome"]
        await session.answer(asked[0].id, "done", by="somebody", note="line one is there")
    async with perdure.open(address) as store:
        chat = await finished(msgspec.structs.replace(plan, death=Death()), store)
        messages = await chat.session.messages()
        assert messages[-1].text == ANSWER
        results = [part.text for part in results_in(messages)]
        assert results == ["line one is there", "wrote two"]
    assert sorted(effects(plan).values()) == [1, 1]


@sampled("n", range(2, 11), kind=lambda n: n % 2)
async def test_budget_question_survives_kill_at_any_commit(tmp_path: Path, n: int) -> None:
    # A limit of one micro-cent: every call asks, and each answer allows little more.
    wanted = plan_in(tmp_path, on_unknown="retry", max_cost_microcents=1, answer="continue")
    acknowledged = killed(msgspec.structs.replace(wanted, death=Death("after_commit", n)))
    async with perdure.open(f"sqlite:///{wanted.database}") as store:
        await is_sound(store, acknowledged)
        session = await store.open(SESSION)
        for asked in await session.questions():
            await session.answer(asked.id, "continue", by="somebody")
    async with perdure.open(f"sqlite:///{wanted.database}") as store:
        chat = await finished(wanted, store)
        await is_sound(store, acknowledged)
        assert (await chat.session.messages())[-1].text == ANSWER
        assert (await standing_of(store, SESSION)).limit_microcents is not None


@pytest.mark.timeout(600)
@pytest.mark.parametrize("most", with_larger(8, 200, *FOR_LONG))
def test_two_hundred_random_kills_of_turns_lose_no_entry(tmp_path: Path, most: int) -> None:
    seed = 0 if "CI" in os.environ else random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    kills = 0
    run = 0
    while kills < rounds(most):
        run += 1
        folder = tmp_path / str(run)
        folder.mkdir()
        policy = chance.choice(UNKNOWN)
        plan = plan_in(folder, on_unknown=policy, chunk_delay_s=0.004)
        acknowledged: list[tuple[int, str]] = []
        while not (ended := one_life(plan, chance, acknowledged)):
            kills += 1
        assert ended
        try:
            check_after(plan, policy, acknowledged)
        except AssertionError as error:
            error.add_note(f"seed {seed}, run {run}, {policy}")
            raise


def one_life(plan: Plan, chance: random.Random, acknowledged: list[tuple[int, str]]) -> bool:
    """Let a child run for a random time and kill it; return whether the child had ended before."""
    with forked(turn.run, plan) as child:
        first = child.line()
        time.sleep(chance.random() ** 2 * 0.12)
        child.kill()
        done = child.ended()
    if done.code not in (0, -9):
        pytest.fail(done.err)
    lines = (first + done.out).splitlines()
    acknowledged += [acknowledgement(line) for line in lines if line.endswith(b"]")]
    return done.code == 0 or any(kind == "turn_finished" for _, kind in acknowledged)


def check_after(plan: Plan, policy: UnknownPolicy, acknowledged: list[tuple[int, str]]) -> None:
    async def check() -> None:
        async with perdure.open(f"sqlite:///{plan.database}") as store:
            chat = await finished(plan, store)
            await is_sound(store, acknowledged)
            assert (await chat.session.messages())[-1].text == ANSWER

    asyncio.run(check())
    if policy != "retry":
        assert all(count == 1 for count in effects(plan).values())
