"""An agent with three tools: two read concurrently, and one asks before it acts.

The agent plans a trip. The agent searches hotels and trains concurrently, and can book up to two
nights without approval. For longer stays it asks: the question shows all arguments, and the answer
is stored in the log. If you stop the program while it asks, or if its input ends, the question
waits in the log and the next start asks again. The log contains every call with its outcome, and an
interrupted booking is never repeated silently.

python examples/tool_agent.py

The answers are a script, so it runs offline. For a real model delete ``models=SCRIPT`` and set
$OPENAI_API_KEY (``pip install 'perdure[openai]'``).
"""

from __future__ import annotations

import asyncio

import perdure
from perdure import assistant, tool_call
from perdure.testing import ScriptedModel


@perdure.tool(effect="read")
async def find_hotels(city: str) -> list[dict[str, object]]:
    """List the hotels of a city with the price of a night."""
    return [{"name": f"{city} Aurora", "price": 120}, {"name": f"{city} Borealis", "price": 95}]


@perdure.tool(effect="read")
async def find_trains(city: str) -> list[str]:
    """List the trains to a city."""
    return [f"07:12 to {city}", f"11:40 to {city}"]


def is_long(hotel: str, nights: int) -> bool:
    """Return whether a booking needs the approval of a person."""
    return nights > 2


@perdure.tool(effect="external", on_unknown="ask", needs_approval=is_long)
async def book(hotel: str, nights: int, *, call: perdure.ToolCall) -> str:
    """Book a hotel."""
    # A real service gets the key with the request: it tells a repeated one from a second booking.
    return f"{nights} nights at the {hotel}, booked under the key {call.idempotency_key}"


AGENT = perdure.Agent(
    "travel",
    model="openai:gpt-5",
    instructions="You plan trips by train.",
    tools=[find_hotels, find_trains, book],
)
SCRIPT = ScriptedModel(
    [
        assistant(
            "I will look.",
            tool_call("c1", "find_hotels", {"city": "Oslo"}),
            tool_call("c2", "find_trains", {"city": "Oslo"}),
        ),
        assistant(tool_call("c3", "book", {"hotel": "Oslo Borealis", "nights": 3})),
        "Take the train at 07:12. You sleep at the Borealis.",
    ]
)


def ask(question: perdure.types.Question) -> str:
    """Ask the person at the terminal."""
    print(question.text)
    choices = " or ".join(question.choices)
    while (choice := input(f"{choices}? ").strip()) not in question.choices:
        print(f"please type {choices}")
    return choice


async def main() -> None:
    """Run one turn, or continue the one that the last process left open."""

    async def answer(asked: perdure.types.OpenQuestion) -> None:
        try:
            choice = await asyncio.to_thread(ask, asked.question)
        except EOFError:  # nobody is at the terminal
            await runtime.suspend()
        else:
            await store.answer(asked.id, choice, by="terminal")

    async with (
        perdure.open("sqlite:///travel.db") as store,
        perdure.Runtime(store, [AGENT], models=SCRIPT, on_question=answer) as runtime,
    ):
        open_chats = await runtime.resume_all()
        chat = open_chats[0] if open_chats else await runtime.start(AGENT)
        try:
            reply = await (chat.turn or chat.send("Three nights in Oslo, please."))
        except perdure.errors.TurnSuspended:
            print("\nNo answer: the question waits in the log, and the next start asks it again.")
            return
        for call in await store.tool_calls(session=chat.id):
            print(f"{call.name}({call.input}) -> {call.output}")
        print(reply.text)


asyncio.run(main())
