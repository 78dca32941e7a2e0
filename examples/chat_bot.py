"""A chat bot in the terminal that streams its answers and remembers every person.

Each name has a separate session whose history survives the program. Run it again with the same
name, and the conversation continues, even if the program was killed during an answer.

    python examples/chat_bot.py ana
    python examples/chat_bot.py ana openai:gpt-5

Without a model it runs offline and repeats what you write. A provider needs its extra
(``pip install 'perdure[openai]'``) and its key ($OPENAI_API_KEY).
"""

from __future__ import annotations

import asyncio
import sys

import perdure


async def show(turn: perdure.Turn) -> None:
    """Print the answer of a turn word by word."""
    try:
        async for event in turn:
            if isinstance(event, perdure.LiveEvent) and event.type == "agent:token":
                print(event.text, end="", flush=True)
        await turn  # raises what ended it
        print()
    except perdure.errors.TurnFailed as error:  # for example the provider is down
        print(f"sorry: {error}")


async def main(name: str = "you", model: str = "scripted:echo") -> None:
    """Answer line by line until an empty line or the end of the input."""
    agent = perdure.Agent("bot", model=model, instructions="Be friendly and brief.")
    async with (
        perdure.open("sqlite:///bot.db") as store,
        perdure.Runtime(store, [agent]) as runtime,
    ):
        await store.open_or_create(f"bot-{name}", subject=name, title=f"Bot and {name}")
        chat = await runtime.resume(f"bot-{name}", agent)
        await chat.set_model(agent.model)  # a session keeps its model; this run may name another
        print(f"({len(await chat.session.messages())} messages so far)")
        if chat.turn is not None:  # the last process was killed while it answered
            await show(chat.turn)
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            await show(chat.send(line))


asyncio.run(main(*sys.argv[1:3]))
