"""A store with data for every view of the console."""

from __future__ import annotations

import struct
import zlib

import perdure
from perdure import assistant, thinking, tool_call, user
from tests.fakes.served import Served


@perdure.tool(effect="read")
def find_order(number: int) -> str:
    """Look an order up."""
    return f"Order {number}: two lamps, sent on 3 March, arrived broken."


@perdure.tool(effect="external", needs_approval=True)
def refund(number: int, reason: str) -> str:
    """Refund the money for an order."""
    return f"refunded {number}: {reason}"


DESK = perdure.Agent(
    "desk",
    model="scripted:desk",
    instructions="You answer customers of a lamp shop.",
    tools=[find_order, refund],
)
ANSWER = """The order is **refunded**. Next steps:

1. You get a message from the bank.
2. You may keep the lamps.

| Order | Amount |
|---|---|
| 1041 | 84.00 |

```python
print("refund", 1041)
```
"""
ANSWERS = (
    assistant(
        thinking("The customer names an order, so I look it up first."),
        "I look the order up.",
        tool_call("c1", "find_order", {"number": 1041}),
    ),
    ANSWER,
    assistant(tool_call("c2", "refund", {"number": 1042, "reason": "arrived broken"})),
)


async def furnished(server: Served) -> str:
    """Fill the store of `server` (its model gives `ANSWERS`); return the fullest session's id."""
    session = await server.said("My order 1041 arrived broken. What now?")
    handle = await server.store.open(session)
    first = (await handle.path(kind="message"))[0]
    leaf = handle.leaf
    await handle.label(first.id, "the complaint")
    await handle.branch(first.id)
    await handle.append(assistant("Please send a picture of the lamps."))
    await handle.append(user("Here is the picture.", perdure.media(_picture(), "image/png")))
    await handle.append(assistant("Thank you. Both lamps are broken."))
    await handle.branch(leaf)
    for n, subject in enumerate(("ana", "bob", "chen")):
        made = await server.store.create(
            title=f"Question {n + 1} about delivery", cwd=f"/home/{subject}/shop", subject=subject
        )
        await made.append(user(f"When does parcel {n} come?"), assistant("On Thursday."))
    for text, subject in (("Prefers letters to calls.", None), ("Lives in Ghent.", "ana")):
        await server.store.memory.remember(text, subject=subject, source=first)
    again = {"text": "Order 1042 is broken as well.", "sessionId": session}
    (await server.http.post("/v1/messages", json=again)).raise_for_status()
    await server.until(session, "waiting")
    closed = await server.store.create(title="A question that is closed")
    await closed.append(user("Do you sell bulbs?"), assistant("No, only lamps."))
    await server.http.post(f"/v1/sessions/{closed.id}/end", json={"reason": "done"})
    return session


def places(session: str) -> tuple[str, ...]:
    """Return every view of the console, and every tab of a conversation."""
    sides = ("tree", "turns", "context")
    tabs = ("recall", "facts", "episodes")
    return (
        "sessions",
        "sessions?q=broken",
        f"sessions/{session}",
        *(f"sessions/{session}?side={side}" for side in sides),
        "inbox",
        *(f"memory?tab={tab}" for tab in tabs),
        "memory?tab=recall&question=Do+we+sell+bulbs",
        "usage",
        "store",
        "cluster",
    )


def _picture() -> bytes:
    """Return a small PNG picture of a lamp's light, in colours from dark to bright."""
    width, height = 96, 64
    rows = b"".join(
        b"\0" + b"".join(bytes((2 * x, 2 * y + 60, 90)) for x in range(width))
        for y in range(height)
    )
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )
