"""``perdure models``: list the providers, and test a model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
import typer

from perdure.apps.cli.exits import DONE, UsageMistake
from perdure.apps.cli.options import JsonOption
from perdure.apps.terminal.output import out_style, show_result, width
from perdure.apps.terminal.style import Meaning
from perdure.apps.terminal.text import Column, clip, safe, table
from perdure.client.agents.providers import ProviderState, Readiness, provider_states
from perdure.client.clock import SystemClock
from perdure.errors import ModelUnavailable
from perdure.models.protocol import ModelClient, ModelRequest
from perdure.models.stream import AnswerBuilder
from perdure.session.messages import MICROCENTS_PER_DOLLAR, Message, Usage, user
from perdure.stores.access.lazy_modules import Later

if TYPE_CHECKING:
    from perdure.apps import wiring
else:
    wiring = Later("perdure.apps.wiring")

PROMPT = "Answer with the one word: ready"
MAX_OUTPUT_TOKENS = 256
"""Enough for one word of a model that cannot be kept from thinking first."""

PATIENCE_S = 60.0

_MEANINGS: dict[Readiness, Meaning] = {
    "configured": "good",
    "default address": "plain",
    "missing key": "warning",
    "missing package": "warning",
}
_SHOWN_CHARS = 60

models_commands = typer.Typer(invoke_without_command=True)


class Trial(msgspec.Struct, frozen=True):
    """The result of one small call. Units: milliseconds from the start of the call."""

    model: str
    text: str
    stop_reason: str | None
    first_ms: int
    total_ms: int
    usage: Usage | None


def add_to(program: typer.Typer) -> None:
    """Make ``perdure models`` known."""
    program.add_typer(models_commands, name="models")


@models_commands.callback()
def list_providers(context: typer.Context, *, as_json: JsonOption = False) -> int:
    """List the model providers, and what each needs to work.

    Makes no call. Keys are read from the environment or the keyring of the system, and never shown.

    Examples:
        perdure models
        perdure models test anthropic:claude-opus-4-5  # call one
    """
    if context.invoked_subcommand is not None:
        if as_json:
            name = context.invoked_subcommand
            raise UsageMistake(f"write the options after the command: perdure models {name} ...")
        return DONE
    states = provider_states(os.environ)
    show_result(states, _state_lines(states), as_json=as_json)
    return DONE


@models_commands.command("test")
async def try_model(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model, as provider:name.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Make one small call to a model, and show how long it took and what it used.

    The call may cost money. It fails if the answer is not complete within a minute.

    Examples:
        perdure models test scripted:echo  # offline, free
        perdure models test openai:gpt-5

    Exit codes:
        1  the model does not answer
        2  unknown provider, or its key is missing
    """
    router = wiring.models()
    try:
        trial = await _try_model(router.client_for(model), model)
    finally:
        await router.aclose()
    show_result(_data(trial), _trial_lines(trial), as_json=as_json)


async def _try_model(client: ModelClient, model: str) -> Trial:
    """Call `model` once.

    Raises: ModelError, also when no complete answer arrives within `PATIENCE_S`.
    """
    clock, builder = SystemClock(), AnswerBuilder(model)
    request = ModelRequest(model, (user(PROMPT),), max_output_tokens=MAX_OUTPUT_TOKENS)
    begun_s, first_s = clock.steady_s(), None
    try:
        async with (
            asyncio.timeout(PATIENCE_S),
            aclosing(cast("Any", client.stream(request))) as deltas,
        ):
            async for delta in deltas:
                first_s = clock.steady_s() if first_s is None else first_s
                builder.add(delta)
    except TimeoutError:
        raise ModelUnavailable(model, f"no whole answer within {PATIENCE_S:g} s") from None
    ended_s = clock.steady_s()
    answer: Message = builder.build()
    return Trial(
        model,
        answer.text,
        answer.stop_reason,
        round(1000 * ((ended_s if first_s is None else first_s) - begun_s)),
        round(1000 * (ended_s - begun_s)),
        answer.usage,
    )


def _state_lines(states: tuple[ProviderState, ...]) -> Iterator[str]:
    style = out_style()
    columns = (
        Column("provider", "strong"),
        Column("status"),
        Column("key", "faint"),
        Column("address or what to do", gives_way=True),
    )
    rows = [
        (state.name, state.status, state.key or "-", safe(state.remedy or state.address))
        for state in states
    ]
    heading, *lines = table(columns, rows, width(), style)
    yield heading
    for line, state in zip(lines, states, strict=True):
        yield line.replace(state.status, style.paint(state.status, _MEANINGS[state.status]), 1)


def _data(trial: Trial) -> dict[str, object]:
    usage = trial.usage
    return {
        "model": trial.model,
        "text": trial.text,
        "stop_reason": trial.stop_reason,
        "first_ms": trial.first_ms,
        "total_ms": trial.total_ms,
        "usage": None if usage is None else msgspec.structs.asdict(usage),
    }


def _trial_lines(trial: Trial) -> Iterator[str]:
    style = out_style()
    answer = f"said {clip(safe(trial.text), _SHOWN_CHARS)!r}" if trial.text else "said nothing"
    yield f"{style.paint('ok', 'good')}  {safe(trial.model)} {answer} ({trial.stop_reason})"
    yield f"    first word after {trial.first_ms:,} ms, all after {trial.total_ms:,} ms"
    yield f"    {_usage_text(trial.usage)}"


def _usage_text(usage: Usage | None) -> str:
    if usage is None:
        return "the provider did not say how many tokens it used"
    counted = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    if cached:
        counted += f", {cached:,} in its cache"
    if usage.cost_microcents is None:
        return f"{counted}; price unknown"
    return f"{counted}; ${usage.cost_microcents / MICROCENTS_PER_DOLLAR:.6f}"
