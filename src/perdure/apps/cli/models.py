"""``perdure models``: list the providers, store their keys, and test a model."""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
from collections.abc import Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
import typer

from perdure.apps.cli.exits import DONE, FAILED, UsageMistake
from perdure.apps.cli.options import JsonOption
from perdure.apps.terminal.advice import with_commands
from perdure.apps.terminal.line_input import piped_text
from perdure.apps.terminal.output import out_style, remark, show, show_result, width
from perdure.apps.terminal.style import Meaning
from perdure.apps.terminal.text import Column, clip, safe, table
from perdure.client.agents.providers import (
    ProviderState,
    Readiness,
    provider_states,
    state_of,
)
from perdure.client.clock import SystemClock
from perdure.client.keys import has_keyring
from perdure.errors import ModelUnavailable
from perdure.models.catalogue import PROVIDERS, Provider
from perdure.models.keys import MOST_BYTES, account_of, find_key, key_file, write_key_file
from perdure.models.protocol import ModelClient, ModelRequest
from perdure.models.stream import AnswerBuilder
from perdure.secrets.vault import Drop, drop_from_keyring, keep_in_keyring
from perdure.session.messages import MICROCENTS_PER_DOLLAR, Message, Usage, user
from perdure.stores.access.lazy_modules import Later

if TYPE_CHECKING:
    from perdure.apps import wiring
else:
    wiring = Later("perdure.apps.wiring")

PROMPT = "Answer with the one word: ready"
MAX_OUTPUT_TOKENS = 256
"""Enough output for a one-word answer, even if the model always reasons first."""

PATIENCE_S = 60.0

_MEANINGS: dict[Readiness, Meaning] = {
    "configured": "good",
    "default address": "plain",
    "missing key": "warning",
    "missing package": "warning",
    "unusable key": "warning",
}
_SHOWN_CHARS = 60

_NOT_DROPPED: dict[Drop, str] = {
    "unread": "the keyring could not be asked: unlock it, and run the command again",
    "kept": "the keyring did not remove the key: remove it with the program of the keyring",
}

models_commands = typer.Typer(invoke_without_command=True)


class Trial(msgspec.Struct, frozen=True):
    """The result of one short model call.

    Units: `first_ms` and `total_ms` are milliseconds from the start of the call.
    """

    model: str
    text: str
    stop_reason: str | None
    first_ms: int
    total_ms: int
    usage: Usage | None


@models_commands.callback()
def list_providers(context: typer.Context, *, as_json: JsonOption = False) -> None:
    """List the model providers, and the requirements of each.

    Makes no call. Keys are read from the environment, a file or the keyring, and never shown.

    Examples:
        perdure models
        perdure models set-key anthropic  # store its key
        perdure models test anthropic:claude-opus-4-5  # call this model
    """
    if context.invoked_subcommand is not None:
        if as_json:
            name = context.invoked_subcommand
            raise UsageMistake(f"write the options after the command: perdure models {name} ...")
        return
    states = provider_states(os.environ)
    show_result(states, _state_lines(states), as_json=as_json)


@models_commands.command("test")
async def try_model(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model, as provider:name.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Make one small call to a model, and show its duration and usage.

    The call can cost money. The command fails if the answer is not complete within a minute.

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
    # As a dict, the usage has every field, also those that are zero.
    usage = None if trial.usage is None else msgspec.structs.asdict(trial.usage)
    data = {**msgspec.structs.asdict(trial), "usage": usage}
    show_result(data, _trial_lines(trial), as_json=as_json)


ProviderArgument = Annotated[
    str, typer.Argument(metavar="PROVIDER", help="A provider, as `perdure models` lists it.")
]


@models_commands.command("set-key")
def set_key(
    provider: ProviderArgument,
    *,
    is_file: Annotated[
        bool, typer.Option("--file", help="Store the key in a file that only you can read.")
    ] = False,
) -> None:
    """Store the key of a provider in the keyring of the system, or with --file in a file.

    The key is read from the terminal without being shown, or from stdin. The key is never an
    argument, because other users of the machine could see arguments.

    Examples:
        perdure models set-key anthropic
        perdure models set-key openai --file < key.txt

    Exit codes:
        2  unknown provider, no key, or no keyring works here
    """
    found = _provider(provider)
    path = key_file(found, os.environ)
    if not is_file and not has_keyring():
        raise UsageMistake(
            f"no keyring works here: set {found.key_variables[0]}, or add --file to keep the key "
            f"in {path}, which only you can read"
        )
    key = _typed_key(found)
    if is_file:
        try:
            write_key_file(path, key)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise UsageMistake(f"the key file {path} cannot be written: {reason}") from error
    elif not keep_in_keyring(account_of(found), key):
        raise UsageMistake("the keyring did not take the key: unlock it, or add --file")
    show(f"The key of {found.title} is kept in {safe(str(path)) if is_file else 'the keyring'}.")
    for line in _after_key(found, key):
        show(line)


@models_commands.command("remove-key")
def remove_key(provider: ProviderArgument) -> int:
    """Remove the key of a provider that `perdure models set-key` stored.

    Examples:
        perdure models remove-key anthropic

    Exit codes:
        1  the key could not be removed from the keyring or from the file
    """
    found = _provider(provider)
    path = key_file(found, os.environ)
    dropped = drop_from_keyring(account_of(found)) if has_keyring() else "absent"
    places = ["the keyring"] if dropped == "removed" else []
    problems = [_NOT_DROPPED[dropped]] if dropped in _NOT_DROPPED else []
    try:
        path.unlink()
        places.append(safe(str(path)))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        reason = error.strerror or type(error).__name__
        problems.append(f"the key file {path} cannot be removed: {reason}")
    if places:
        show(f"The key of {found.title} is removed from {' and '.join(places)}.")
    elif not problems:
        show(f"No key of {found.title} is kept here.")
    for name in found.key_variables:
        if os.environ.get(name):
            show(f"{name} is still set in your environment.")
    for problem in problems:
        remark(f"perdure: {safe(problem)}")
    return FAILED if problems else DONE


def _provider(name: str) -> Provider:
    """Return the provider `name`; for a model name (provider:name), the provider of the model."""
    found = PROVIDERS.get(name.partition(":")[0])
    if found is None:
        raise UsageMistake(f"unknown provider {name!r}; known: {', '.join(PROVIDERS)}")
    return found


def _typed_key(provider: Provider) -> str:
    """Return the key from a hidden prompt or from piped input."""
    if sys.stdin.isatty():
        key = getpass.getpass(f"Key of {provider.title}: ").strip()
    else:
        key = (piped_text(MOST_BYTES) or "").strip()
    if not key:
        raise UsageMistake("there is no key: type it, or pipe it in (`... < key.txt`)")
    if len(key) > MOST_BYTES or not key.isascii() or not key.isprintable() or " " in key:
        raise UsageMistake("this is no key: a key is one word of ASCII characters")
    return key


def _after_key(provider: Provider, key: str) -> Iterator[str]:
    """Yield lines on what else `provider` needs, and how to test it."""
    state = state_of(provider, os.environ)
    if state.status == "unusable key":
        yield f"The key file comes first, and it cannot be used: {safe(state.remedy)}"
        return
    used = find_key(provider, os.environ)
    if used is not None and used.value != key:
        yield f"Another key comes first, from {used.source}. Remove it to use the new one."
    if state.status == "missing package":
        yield f"Its package is missing: {provider.install}"
    yield f"Try it: perdure models test {provider.name}:MODEL"


async def _try_model(client: ModelClient, model: str) -> Trial:
    """Call `model` once.

    Raises: ModelError if the call fails, or if no complete answer arrives within `PATIENCE_S`.
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
        Column("PROVIDER", "strong"),
        Column("STATUS"),
        Column("KEY", "faint"),
        Column("ADDRESS OR WHAT TO DO", gives_way=True),
    )
    rows = [
        (
            state.name,
            state.status,
            state.key or "-",
            safe(with_commands(state.remedy) or state.address),
        )
        for state in states
    ]
    heading, *lines = table(columns, rows, width(), style)
    yield heading
    for line, state in zip(lines, states, strict=True):
        yield line.replace(state.status, style.paint(state.status, _MEANINGS[state.status]), 1)


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
