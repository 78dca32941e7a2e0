"""A batch: classify 100 tickets, ten at a time, each in a session of its own.

Each answer is a value of a type, validated before it is used. A session is named after its ticket,
so no model call is paid twice. Kill the program at any point and run it again: it reads the stored
answers, continues interrupted calls, and makes the missing calls. Two concurrent runs make each
call only once.

    python examples/batch.py
    python examples/batch.py openai:gpt-5-mini

Without a model it runs offline: `batch.yaml` has the answers. A provider needs its extra
(``pip install 'perdure[openai]'``) and its key ($OPENAI_API_KEY).
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec

import perdure

OFFLINE = f"scripted:{Path(__file__).with_name('batch.yaml')}"
TEXTS = (
    "The invoice has the wrong address.",
    "It crashes at the start.",
    "I love the new colours.",
)
TICKETS = {f"ticket-{number:03}": TEXTS[number % len(TEXTS)] for number in range(100)}


@dataclass
class Verdict:
    """What a ticket is about."""

    category: Literal["billing", "bug", "praise"]
    urgency: Annotated[int, msgspec.Meta(ge=1, le=5)]


async def classify(
    store: perdure.Store, runtime: perdure.Runtime, agent: perdure.Agent[Verdict], ticket: str
) -> Verdict | None:
    """Return the verdict on `ticket`, from its session if the session has a verdict."""
    await store.open_or_create(ticket, metadata={"batch": "tickets"})
    chat = await runtime.resume(ticket, agent)  # continues a turn that was cut off, as `chat.turn`
    if chat.turn is not None:
        return (await chat.turn).output
    info = await chat.session.info()
    for message in await chat.session.messages(last=1):
        with suppress(msgspec.DecodeError):  # no verdict: its turn failed, so ask again
            return msgspec.json.decode(message.text, type=Verdict)
        await chat.set_model(agent.model)  # a session keeps its model, which may have failed
    # Another run that asks at the same time sends the same key, and gets the answer of this turn.
    ended = info.turns - (info.open_turn is not None)
    return (await chat.send(TICKETS[ticket], idempotency_key=f"{ticket} {ended}")).output


async def main(model: str = OFFLINE) -> None:
    """Classify all tickets, and print their subjects and the cost."""
    agent = perdure.Agent("clerk", model=model, instructions="Classify.", output=Verdict)
    places = asyncio.Semaphore(10)

    async def one(ticket: str) -> Verdict | None:
        async with places:
            try:
                return await classify(store, runtime, agent, ticket)
            except perdure.errors.TurnFailed as error:  # the others go on
                print(f"{ticket}: {error}", file=sys.stderr)
                return None

    async with (
        perdure.open("sqlite:///batch.db") as store,
        perdure.Runtime(store, [agent]) as runtime,
    ):
        verdicts = await asyncio.gather(*(one(ticket) for ticket in TICKETS))
        for category, count in Counter(verdict.category for verdict in verdicts if verdict).items():
            print(f"{count:4} {category}")
        for used in await store.usage(by="model"):
            print(f"{used.calls} calls, {used.usage.total_tokens} tokens")


asyncio.run(main(*sys.argv[1:2]))
