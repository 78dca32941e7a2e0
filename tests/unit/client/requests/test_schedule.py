"""Messages that this process sends later. Workers: see tests/integration/cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure import Agent, Chat, Recurring, Runtime, Scheduler, Store, Workspace
from perdure.client.agents.bindings import Bindings
from perdure.client.clock import SystemClock
from perdure.client.requests.schedule import due_at_of
from perdure.errors import (
    ConfigError,
    InvalidAgentFile,
    LimitExceeded,
    SessionNotFound,
    TurnSuspended,
    WrongArgument,
)
from perdure.session.ids import StreamId
from perdure.session.ledger import TurnRequested
from tests.fakes.clock import START_MS
from tests.fakes.mcp_servers import light
from tests.fakes.rivals import meanwhile
from tests.fakes.samples import ALL_ONLY
from tests.fakes.workers import until

DUE = datetime(2100, 1, 1, tzinfo=UTC)
AGENT = Agent("helper", model="scripted:echo")


@perdure.tool(effect="read")
def look() -> str:
    """Look."""
    return "green"


def look_at(thing: str) -> str:
    """Look."""
    return thing


GREEN = Recurring("0 9 * * *", "Is the build green?")
DAILY = Agent("daily", model="scripted:echo", recurring=[GREEN])


AHEAD_MS = 60_000
"""Time until a message is due: longer than a busy machine needs to close every runtime."""


class Hastened(SystemClock):
    """The clock of this machine, set to a fixed time and advanced by tests."""

    def __init__(self) -> None:
        self.ahead_ms = START_MS - super().now_ms()

    def now_ms(self) -> int:
        """Return the Unix time in milliseconds."""
        return super().now_ms() + self.ahead_ms


@pytest.fixture
def clock() -> Hastened:
    return Hastened()


@pytest.fixture
async def store(clock: Hastened) -> AsyncIterator[Store]:
    async with perdure.open("memory:", clock=clock) as opened:
        yield opened


def soon(store: Store) -> int:
    return store.outside.clock.now_ms() + AHEAD_MS


async def texts(store: Store, session: str) -> list[str]:
    return [each.text for each in await (await store.open(session)).messages()]


async def within(store: Store, session: str, text: str) -> bool:
    """Wait until the session has a turn with `text`."""
    async with asyncio.timeout(60):
        async for event in (await store.open(session)).watch(0):
            if isinstance(event, perdure.Event) and event.type == "session:turn_completed":
                return text in await texts(store, session)
    return False


def test_due_time_can_be_datetime_or_milliseconds() -> None:
    assert due_at_of(DUE) == due_at_of(4_102_444_800_000) == 4_102_444_800_000
    for wrong in (-1, 10**18):
        with pytest.raises(WrongArgument, match="not a time from 1970 to 9999"):
            due_at_of(wrong)


async def test_message_scheduled_before_a_restart_is_sent_once(
    store: Store, clock: Hastened
) -> None:
    async with Runtime(store, agents=[AGENT]) as runtime:
        chat = await runtime.start(AGENT)
        left = chat.send("left", at=soon(store))
    with pytest.raises(TurnSuspended):
        await left
    clock.ahead_ms += AHEAD_MS
    async with (
        Runtime(store, agents=[AGENT]) as first,
        Runtime(store, agents=[AGENT]) as second,
        Scheduler(first),
        Scheduler(second),
    ):
        assert await within(store, chat.id, "left")
    assert [text for text in await texts(store, chat.id) if text == "left"] == ["left"]


async def test_cancelled_message_is_never_sent(store: Store) -> None:
    async with Runtime(store, agents=[AGENT]) as runtime:
        chat = await runtime.start(AGENT)
        turn = chat.send("tomorrow", at=DUE)
        await turn.stored()
        (waiting,) = await store.schedule.list()
        assert (waiting.session, waiting.message.text) == (chat.id, "tomorrow")
        await store.schedule.cancel(waiting.id)
        assert (await turn).end == "aborted"
        with pytest.raises(WrongArgument, match="is not a scheduled message"):
            await store.schedule.cancel(waiting.id)
        aborted = chat.send("never", at=DUE)
        await aborted.stored()
        aborted.abort()
        assert (await aborted).end == "aborted"
        assert await store.schedule.list() == []
        assert await texts(store, chat.id) == []


async def test_message_can_be_cancelled_while_another_process_has_the_lease(store: Store) -> None:
    async with Runtime(store, agents=[AGENT]) as runtime:
        chat = await runtime.start(AGENT)
        await chat.send("tomorrow", at=DUE).stored()
    (waiting,) = await store.schedule.list()
    lease = await store.backend.acquire_lease(chat.id, "another process", 60_000)
    await store.schedule.cancel(waiting.id)
    assert await store.schedule.list() == []
    with pytest.raises(WrongArgument, match="is not a scheduled message"):
        await store.schedule.cancel(waiting.id)
    await store.backend.release_lease(lease)


async def test_recurring_message_is_planned_only_once_per_time(store: Store) -> None:
    async with Runtime(store, agents=[DAILY]) as first, Runtime(store, agents=[DAILY]) as second:
        planners = [Scheduler(first), Scheduler(second)]
        await asyncio.gather(*(each.plan() for each in planners for _ in range(3)))
        (planned,) = await store.schedule.list()
        assert planned.message.text == "Is the build green?"
        assert planned.session.startswith("daily-")
        await store.schedule.cancel(planned.id)
        await planners[0].plan()
        (following,) = await store.schedule.list()
        assert following.due_at == GREEN.next_after(planned.due_at)


async def test_recurring_message_is_planned_if_its_session_already_exists(store: Store) -> None:
    due_at = GREEN.next_after(store.outside.clock.now_ms())
    name = f"daily-{GREEN.key}-{datetime.fromtimestamp(due_at / 1000, UTC):%Y%m%dT%H%M}"
    async with Runtime(store, agents=[DAILY]) as runtime:
        await runtime.start(DAILY, id=name)  # what a killed process left
        await Scheduler(runtime).plan()
        (planned,) = await store.schedule.list()
        assert planned.session == name


async def test_agent_that_cannot_start_does_not_block_messages_of_other_agents(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Agent("a-broken", model="scripted:echo", mcp_servers=["unknown"], recurring=[GREEN])
    async with Runtime(store, agents=[broken, DAILY]) as runtime:
        scheduler = Scheduler(runtime)
        await scheduler.plan()
        await scheduler.plan()
        assert [each.session[:6] for each in await store.schedule.list()] == ["daily-"]
    assert [each.getMessage()[:14] for each in caplog.records] == ["agent a-broken"]


async def test_agent_that_starts_slowly_delays_no_message_and_no_other_agent(
    store: Store, clock: Hastened, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Agent("a-slow", model="scripted:echo", recurring=[GREEN])
    session = await left_message(store, clock)
    async with Runtime(store, agents=[slow, DAILY, AGENT]) as runtime:
        begin = Bindings.begin

        async def begin_slowly(bindings: Bindings, agent: Agent, *rest: Any, **how: Any) -> None:
            if agent.id == "a-slow":
                await asyncio.Event().wait()
            await begin(bindings, agent, *rest, **how)

        monkeypatch.setattr(Bindings, "begin", begin_slowly)

        async def is_planned() -> bool:
            return [each.session[:6] for each in await store.schedule.list()] == ["daily-"]

        async with Scheduler(runtime):
            assert await within(store, session, "left")
            await until(is_planned)


async def test_unexpected_error_of_one_agent_does_not_block_messages_of_other_agents(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Agent("a-broken", model="scripted:echo", recurring=[GREEN])
    async with Runtime(store, agents=[broken, DAILY]) as runtime:
        begin = Bindings.begin

        async def begin_or_fail(bindings: Bindings, agent: Agent, *rest: Any, **how: Any) -> None:
            if agent.id == "a-broken":
                raise OSError("the disk has gone")
            await begin(bindings, agent, *rest, **how)

        monkeypatch.setattr(Bindings, "begin", begin_or_fail)
        await Scheduler(runtime).plan()
        assert [each.session[:6] for each in await store.schedule.list()] == ["daily-"]
    assert [each.getMessage()[:14] for each in caplog.records] == ["agent a-broken"]


async def test_recurring_message_of_agent_with_long_id_is_planned_once(store: Store) -> None:
    twins = [Agent("a" * 120 + end, model="scripted:echo", recurring=[GREEN]) for end in "xy"]
    async with Runtime(store, agents=twins) as runtime:
        for _ in range(2):
            await Scheduler(runtime).plan()
        sessions = {each.session for each in await store.schedule.list()}
    assert len(sessions) == len(twins)
    assert all(len(each) <= 128 and each.startswith("a" * 80) for each in sessions)


async def test_message_of_unknown_agent_waits_for_a_runtime_that_has_it(
    store: Store, clock: Hastened
) -> None:
    session = await left_message(store, clock)
    async with Runtime(store, agents=[DAILY]) as other:
        scheduler = Scheduler(other)
        for _ in range(2):
            async with scheduler:  # each begins with a pass
                await asyncio.sleep(0.05)
        (waiting,) = await store.schedule.list(session)
        assert waiting.due_at <= store.outside.clock.now_ms()
        assert await texts(store, session) == []
    async with Runtime(store, agents=[AGENT]) as able, Scheduler(able):
        assert await within(store, session, "left")
    assert await store.schedule.list(session) == []


async def left_message(store: Store, clock: Hastened) -> str:
    """Create a due message that no process sends; return its session."""
    async with Runtime(store, agents=[AGENT]) as runtime:
        chat = await runtime.start(AGENT)
        await chat.send("left", at=soon(store)).stored()
    clock.ahead_ms += AHEAD_MS
    return chat.id


@pytest.mark.full_only
async def test_message_that_cannot_be_sent_now_is_retried(
    store: Store, clock: Hastened, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await left_message(store, clock)
    async with Runtime(store, agents=[AGENT]) as runtime:
        resume, failures = runtime.resume, [ConfigError("no key yet"), OSError("no disk yet")]

        async def resume_later(session: str) -> Chat:
            if failures:
                raise failures.pop()
            return await resume(session)

        monkeypatch.setattr(runtime, "resume", resume_later)
        async with Scheduler(runtime):
            assert await within(store, session, "left")


async def test_message_that_often_failed_is_still_retried_every_five_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Skipping(Hastened):
        skipped_s = 0.0

        def steady_s(self) -> float:
            return super().steady_s() + self.skipped_s

    tries = asyncio.Queue[str]()

    async def fail(session: str) -> Chat:
        tries.put_nowait(session)
        raise ConfigError(f"no key for {session}")

    clock = Skipping()
    async with perdure.open("memory:", clock=clock) as store:
        await left_message(store, clock)
        async with Runtime(store, agents=[AGENT]) as runtime:
            monkeypatch.setattr(runtime, "resume", fail)
            scheduler = Scheduler(runtime)
            for _ in range(12):
                clock.skipped_s += 301
                await scheduler.send_due()
                await asyncio.wait_for(tries.get(), 10)
                for _ in range(3):  # until the scheduler has seen the end of this try
                    await asyncio.sleep(0)


async def test_message_that_can_never_be_sent_is_rejected(
    store: Store, clock: Hastened, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await left_message(store, clock)

    async def refuse(session: str) -> Chat:
        raise WrongArgument("too long", argument="message")

    async def is_refused() -> bool:
        return await store.schedule.list() == []

    async with Runtime(store, agents=[AGENT]) as runtime:
        monkeypatch.setattr(runtime, "resume", refuse)
        async with Scheduler(runtime):
            await until(is_refused)
    assert await texts(store, session) == []


async def test_session_is_not_resumed_while_another_process_has_its_lease(
    store: Store, clock: Hastened, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await left_message(store, clock)
    lease = await store.backend.acquire_lease(StreamId(session), "another process", 60_000)
    async with Runtime(store, agents=[AGENT]) as runtime:
        resume, resumed = runtime.resume, list[str]()

        async def resume_counted(session: str) -> Chat:
            resumed.append(session)
            return await resume(session)

        monkeypatch.setattr(runtime, "resume", resume_counted)
        async with Scheduler(runtime):
            await asyncio.sleep(0.05)
        assert resumed == []
        await store.backend.release_lease(lease)
        async with Scheduler(runtime):
            assert await within(store, session, "left")
        assert resumed == [session]


FILE = """\
id: daily
model: scripted:echo
system_prompt: Look at the build.
recurring:
  - cron: {cron}
    message: Is the build green?
    timezone: Europe/Oslo
"""


def test_agent_file_with_recurring_messages_is_read_and_written_unchanged() -> None:
    agent = perdure.agent_of_text(FILE.format(cron='"0 9 * * mon-fri"'))
    assert agent.recurring == (Recurring("0 9 * * mon-fri", "Is the build green?", "Europe/Oslo"),)
    assert perdure.agent_of_text(perdure.agent_text(agent)).recurring == agent.recurring
    assert "recurring" not in agent.snapshot()


def test_error_for_an_invalid_cron_expression_contains_the_line() -> None:
    with pytest.raises(InvalidAgentFile, match=r":5: .61. is not a minute"):
        perdure.agent_of_text(FILE.format(cron='"61 9 * * *"'))


@pytest.mark.full_only
async def test_planned_session_starts_mcp_servers_only_when_resumed(
    store: Store, tmp_path: Path
) -> None:
    deeds = tmp_path / "deeds"
    fake = light(deeds, "fake")
    agent = Agent(
        "served", model="scripted:echo", recurring=[GREEN], tools=[look], mcp_servers=[fake]
    )
    async with Runtime(store, agents=[agent]) as runtime:
        await Scheduler(runtime).plan()
        (planned,) = await store.schedule.list()
        assert not deeds.exists()
        chat = await runtime.resume(planned.session)
        assert deeds.exists()
        names = chat.agent.registry.names
        assert names[0] == "look"
        assert any(name.startswith("mcp_fake_") for name in names)
        again = await runtime.resume(planned.session)
        assert again.agent.registry.names == names
        bindings = [each.kind async for each in chat.session.entries() if "agent" in each.kind]
        assert bindings == ["agent_bound"]


@pytest.mark.all_only
@pytest.mark.full_only
async def test_resume_by_another_agent_keeps_mcp_tools_of_planned_session(
    store: Store, tmp_path: Path
) -> None:
    deeds = tmp_path / "deeds"
    fake = light(deeds, "fake")
    agent = Agent(
        "served", model="scripted:echo", recurring=[GREEN], tools=[look], mcp_servers=[fake]
    )
    helper = Agent("helper", model="scripted:echo", tools=[look])
    narrow = msgspec.structs.replace(agent, mcp_servers=())
    untooled = Agent("untooled", model="scripted:echo", mcp_servers=agent.mcp_servers)
    async with Runtime(store, agents=[agent, helper]) as runtime:
        await Scheduler(runtime).plan()
        (planned,) = await store.schedule.list()
        for other in (helper, narrow):
            chat = await runtime.resume(planned.session, other)
            assert chat.agent.registry.names == ("look",)
            assert not deeds.exists()
        moved = await runtime.resume(planned.session, untooled, workspace=Workspace(str(tmp_path)))
        others = moved.agent.registry.names
        assert others
        assert all(name.startswith("mcp_fake_") for name in others)
        kinds = [each.kind async for each in moved.session.entries()]
        assert "agent_bound" not in kinds
        again = await runtime.resume(planned.session)
        assert again.agent.registry.names == ("look", *others)
        assert again.workspace.working_dir == str(tmp_path)


@pytest.mark.full_only
async def test_session_planned_earlier_gets_no_new_or_changed_tools(
    store: Store, tmp_path: Path
) -> None:
    def agent(*tools: Callable[..., str], servers: list[str]) -> Agent:
        mcp = [light(tmp_path / name, name) for name in servers]
        return Agent(
            "served", model="scripted:echo", recurring=[GREEN], tools=tools, mcp_servers=mcp
        )

    async with Runtime(store, agents=[agent(look, servers=["first"])]) as runtime:
        await Scheduler(runtime).plan()
        (planned,) = await store.schedule.list()
    changed = perdure.tool(effect="read", name="look")(look_at)
    async with Runtime(store, agents=[agent(changed, servers=["first", "later"])]) as runtime:
        names = (await runtime.resume(planned.session)).agent.registry.names
        assert names
        assert all(name.startswith("mcp_first_") for name in names)  # and no `look`
    async with Runtime(store, agents=[agent(look, servers=["first"])]) as runtime:
        assert (await runtime.resume(planned.session)).agent.registry.names == ("look", *names)


@pytest.mark.full_only
@pytest.mark.parametrize(
    "granted",
    [
        pytest.param([], marks=ALL_ONLY),
        pytest.param(["second"], marks=ALL_ONLY),
        ["first", "second"],
    ],
)
async def test_grant_does_not_remove_mcp_servers_of_a_planned_session(
    store: Store, tmp_path: Path, granted: list[str]
) -> None:
    def agent(id: str, *servers: str, **more: Any) -> Agent:
        mcp = [light(tmp_path / name, name) for name in servers]
        return Agent(id, model="scripted:echo", mcp_servers=mcp, **more)

    served = agent("served", "first", recurring=[GREEN])
    given = agent("given", *granted, tools=[look])
    async with Runtime(store, agents=[served, given]) as runtime:
        await Scheduler(runtime).plan()
        (planned,) = await store.schedule.list()
        await runtime.grant(planned.session, given, by="ana")
        for named, expected in ((None, {"first"}), (given, {"look", *granted})):
            names = (await runtime.resume(planned.session, named)).agent.registry.names
            assert {name.removeprefix("mcp_").partition("_")[0] for name in names} == expected


async def test_held_lease_does_not_prevent_planning_of_the_next_message(
    store: Store,
) -> None:
    async with Runtime(store, agents=[DAILY]) as runtime:
        await Scheduler(runtime).plan()
        (planned,) = await store.schedule.list()
        lease = await store.backend.acquire_lease(planned.session, "another process", 60_000)
        await store.schedule.cancel(planned.id)
        for _ in range(2):
            await Scheduler(runtime).plan()
        (following,) = await store.schedule.list()
        assert following.due_at == GREEN.next_after(planned.due_at)
        await store.backend.release_lease(lease)


async def test_recurring_message_of_agent_with_unknown_provider_is_not_planned(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    lost = Agent("lost", model="nowhere:x", recurring=[GREEN])
    async with Runtime(store, agents=[lost]) as runtime:
        await Scheduler(runtime).plan()
    assert await store.recent() == []
    assert "unknown model provider 'nowhere'" in caplog.text


async def test_scheduled_message_is_sent_once_by_the_scheduler(
    store: Store, clock: Hastened
) -> None:
    async with Runtime(store, agents=[AGENT]) as runtime:
        chat = await runtime.start(AGENT)
        await chat.send("hi")
    added = await store.schedule.add(chat.id, "Is it green?", at=soon(store))
    assert await store.schedule.list() == [added]
    clock.ahead_ms += AHEAD_MS

    async def is_answered() -> bool:
        return len(await texts(store, chat.id)) == 4

    async with Runtime(store, agents=[AGENT]) as runtime, Scheduler(runtime):
        await until(is_answered)
    assert (await texts(store, chat.id)).count("Is it green?") == 1
    assert await store.schedule.list() == []


async def test_message_that_no_agent_can_send_is_not_added(store: Store) -> None:
    empty = await store.create()
    with pytest.raises(WrongArgument, match="no agent that is in force here"):
        await store.schedule.add(empty.id, "Hello", at=DUE)
    with pytest.raises(SessionNotFound):
        await store.schedule.add("nobody", "Hello", at=DUE)
    async with Runtime(store, agents=[AGENT]) as runtime:
        chat = await runtime.start(AGENT)
    with pytest.raises(WrongArgument, match="not a time"):
        await store.schedule.add(chat.id, "Hello", at=-1)
    with pytest.raises(LimitExceeded):
        await store.schedule.add(chat.id, "x" * 100_000_000, at=DUE)
    assert await store.schedule.list() == []


async def test_recurring_message_planned_at_the_same_moment_is_planned_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Runtime(store, agents=[DAILY]) as runtime:
        rival = Scheduler(runtime).plan
        meanwhile(monkeypatch, store.backend, TurnRequested.kind, rival)
        await Scheduler(runtime).plan()
        assert len(await store.schedule.list()) == 1
