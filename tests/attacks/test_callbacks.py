"""A turn ends, and the next one starts, whatever the program's own functions do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import Any, get_args

import msgspec
import pytest

import perdure
from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.engine.hooks.points import HookName
from perdure.engine.turns.config import CompactionSettings
from perdure.errors import CredentialsRefused, PerdureError
from perdure.models.protocol import (
    Delta,
    ModelInfo,
    ModelRequest,
    StreamEnd,
    TextDelta,
    ToolCallDelta,
)
from perdure.session.ids import StreamId
from perdure.session.messages import Message, TextPart, Usage
from perdure.tools.spec import ToolOutput, ToolSpec
from tests.fakes.players import Theatre, asks, words
from tests.fakes.samples import ALL_ONLY

WITHIN_S = 60.0


class Odd(BaseException):
    """A `BaseException` that is not an `Exception`."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it has no text")


def broken(value: msgspec.Struct, **fields: object) -> object:
    """Return `value` with fields of wrong types."""
    for name, given in fields.items():
        msgspec.structs.force_setattr(value, name, given)
    return value


RAISED: list[Callable[[], BaseException]] = [
    asyncio.CancelledError,
    GeneratorExit,
    StopIteration,
    StopAsyncIteration,
    Odd,
    Unprintable,
    RecursionError,
    MemoryError,
    lambda: BaseExceptionGroup("group", [Odd(), asyncio.CancelledError()]),
    lambda: perdure.errors.InvalidEntry("it is no entry"),
]
NONSENSE: list[object] = [
    None,
    True,
    7,
    float("nan"),
    "sk-secret-key",
    "\ud800",
    b"bytes",
    object(),
    [],
    {"a": {1, 2}},
    broken(ToolOutput("a"), text=None),
    broken(ToolOutput("a"), media=(5,)),
    broken(Message("assistant", (TextPart("a"),)), parts=(7,)),
    broken(Message("assistant", (TextPart("a"),)), role="nobody"),
    broken(TextDelta("a"), text=5),
]
ALL = [*RAISED, *NONSENSE]


def does(behaviour: object) -> Any:
    """If `behaviour` is in `RAISED`, call it and raise the result; otherwise return `behaviour`."""
    if any(behaviour is each for each in RAISED):
        raise behaviour()  # type: ignore[operator]  # it makes an exception
    return behaviour


async def over(chat: Chat, theatre: Theatre, said: str) -> None:
    """Run a turn, which must end."""
    turn = chat.send(said)
    try:
        await asyncio.wait_for(turn.settled(), WITHIN_S)
        await turn
    except PerdureError:
        pass
    assert (await theatre.memory.state(StreamId("s"))).open_turn is None


def plain(behaviour: object) -> Callable[..., Any]:
    return lambda *_: does(behaviour)


def async_(behaviour: object) -> Callable[..., Any]:
    async def callback(*_: object) -> object:
        await asyncio.sleep(0)
        return does(behaviour)

    return callback


STYLES = (plain, async_)
CONTAINED = pytest.mark.contained


@pytest.mark.parametrize("style", STYLES)
async def test_turn_ends_whatever_renew_credentials_does(
    style: Callable[[object], Callable[..., Any]], caplog: pytest.LogCaptureFixture
) -> None:
    for behaviour in ALL:
        theatre = Theatre(main=[[CredentialsRefused("p:main", "no")]])
        chat = await theatre.chat(options={"renew_credentials": style(behaviour)})
        await over(chat, theatre, "go")
        assert (await chat.send("again")).text == "done"
    assert "sk-secret-key" not in caplog.text


@pytest.mark.parametrize(
    ("name", "style", "behaviours"),
    [  # `make test` runs each hook in one style, with half of the behaviours
        each
        for number, name in enumerate(get_args(HookName))
        for each in (
            pytest.param(name, STYLES[number % 2], ALL[number % 4 // 2 :: 2], marks=CONTAINED),
            pytest.param(name, plain, ALL, marks=ALL_ONLY),
            pytest.param(name, async_, ALL, marks=ALL_ONLY),
        )
    ],
)
async def test_turn_ends_whatever_a_hook_does(
    name: HookName, style: Callable[[object], Callable[..., Any]], behaviours: list[object]
) -> None:
    for behaviour in behaviours:
        answer, summary = words("long " * 50, Usage(180, 20)), words("What was said. " * 20)
        theatre = Theatre(main=[asks("act"), answer, summary])
        theatre.players.windows["main"] = 200
        runtime = theatre.runtime()
        runtime.on(name, style(behaviour))

        async def act() -> str:
            return "acted"

        compaction = CompactionSettings(keep_recent_tokens=0)
        agent = Agent("helper", model="p:main", tools=(act,), compaction=compaction)
        chat = await runtime.start(agent, id="s")
        await over(chat, theatre, "go")
        await over(chat, theatre, "again " * 30)
        for moving in (chat.session.fork, partial(chat.session.branch, None)):
            with suppress(PerdureError):  # a guard may block it
                await asyncio.wait_for(moving(), WITHIN_S)
        await asyncio.wait_for(runtime.close(), WITHIN_S)


@pytest.mark.parametrize("style", [plain, async_])
async def test_turn_ends_whatever_a_tool_does(
    style: Callable[[object], Callable[..., Any]],
) -> None:
    for behaviour in ALL:
        spec = ToolSpec("act", "Act.", {"type": "object"}, style(behaviour))
        theatre = Theatre(main=[asks("act")])
        chat = await theatre.chat(tools=(spec,))
        await over(chat, theatre, "go")
        assert (await asyncio.wait_for(chat.send("again"), WITHIN_S)).text == "done"


class Client:
    """A model client that does `behaviour` at one place of its answer."""

    def __init__(self, place: str, behaviour: object) -> None:
        self.place = place
        self.behaviour = behaviour
        self.is_good = False

    def info(self, model: str) -> ModelInfo:
        return self._done("info", ModelInfo(model, 100_000))

    def cost_microcents(self, model: str, usage: Usage) -> int | None:
        return self._done("cost", 1)

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        return self._done("stream", self._stream(request))

    async def _stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        if self._is_here("first"):
            yield does(self.behaviour)
        yield TextDelta("Hello")
        if self._is_here("middle"):
            yield does(self.behaviour)
        if self._is_here("tool"):
            yield ToolCallDelta(0, does(self.behaviour), does(self.behaviour), "{}")
        usage = does(self.behaviour) if self._is_here("usage") else Usage(1, 1)
        yield StreamEnd(does(self.behaviour) if self._is_here("stop") else "stop", usage)
        if self._is_here("last"):
            yield does(self.behaviour)

    def _is_here(self, place: str) -> bool:
        return self.place == place and not self.is_good

    def _done(self, place: str, good: Any) -> Any:
        return does(self.behaviour) if self._is_here(place) else good


PLACES = ["info", "cost", "stream", "first", "middle", "tool", "usage", "stop", "last"]


@pytest.mark.parametrize("place", PLACES)
async def test_turn_ends_whatever_a_model_client_does(place: str) -> None:
    for behaviour in ALL:
        theatre = Theatre()
        client = Client(place, behaviour)
        client.is_good = place == "info"
        runtime = perdure.Runtime(theatre.store, models=client, owner="here")
        agent = Agent("helper", model="p:main", max_cost_microcents=10**9, on_exceed="warn")
        chat = await runtime.start(agent, id="s")
        client.is_good = False
        await over(chat, theatre, "go")
        client.is_good = True
        assert (await asyncio.wait_for(chat.send("again"), WITHIN_S)).text == "Hello"


class Leaving:
    """A model client that makes a turn run `leave` at `place`, until `place` is None."""

    def __init__(self, place: str, leave: Callable[..., None]) -> None:
        self.place: str | None = place
        self.leave = leave

    def info(self, model: str) -> ModelInfo:
        return ModelInfo(model, None)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        if self.place == "model":
            self.leave()
        if self.place == "renewal":
            raise CredentialsRefused(request.model, "no")
        for delta in asks("act") if self._calls(request) else words("done"):
            assert not isinstance(delta, Exception)
            yield delta  # type: ignore[misc]  # deltas alone

    def _calls(self, request: ModelRequest) -> bool:
        return self.place == "tool" and request.messages[-1].role == "user"


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("place", ["tool", "hook", "model", "renewal"])
def test_exit_in_a_callback_does_not_end_a_blocking_program(
    place: str, error: type[BaseException]
) -> None:
    def leave(*_: object) -> Any:
        raise error

    async def act() -> str:
        leave()
        return "acted"

    models = Leaving(place, leave)
    agent = Agent("helper", model="p:main", tools=(act,))
    said: list[str] = []

    def program() -> None:
        with (
            perdure.blocking.open("memory:") as store,
            perdure.blocking.Runtime(store, [agent], models=models, renew_credentials=leave) as rt,
        ):
            remove = rt.on("before_model_call", leave if place == "hook" else lambda _: None)
            chat = rt.start(agent)
            with suppress(PerdureError):
                chat.send("go").result()
            remove()
            models.place = None
            said.append(chat.send("again").result().text)

    thread = threading.Thread(target=program, daemon=True)
    thread.start()
    thread.join(WITHIN_S)
    assert said == ["done"]
