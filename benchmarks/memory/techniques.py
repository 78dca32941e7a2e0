"""Measure what each part of the ranking gains; fit weights on one half of the conversations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from rich.table import Table

from benchmarks.memory.conversations import Conversation
from benchmarks.memory.measures import GROUPS, HALVES, Means, Outcome, means, outcomes_of
from benchmarks.memory.memories import Asker, Memory, filled, reference
from benchmarks.memory.reference import STANDARD, WITH, WITHOUT, Techniques
from perdure.models.embedders.protocol import Embedder

FACTORS = (0.0, 0.5, 0.75, 1.0, 1.33, 2.0)
FITTED_VECTORS = ("vector", "own_vector")
FITTED = ("context", "own", "session", "speaker", "date", "time", "answers", "asks", "has_question")
IN_RECALL = frozenset(WITHOUT) - {"stems", "reach"}
"""Techniques that can be disabled in the product."""

VECTORS = ("meaning", "own meaning")
"""Techniques that need an embedder."""

AskerOf = Callable[[Conversation, Techniques], Asker]
"""Return the function that answers questions about a conversation."""


class Rankings:
    """The ranking of each conversation, by the product or by the reference, with given weights."""

    def __init__(
        self, asking: str, conversations: Sequence[Conversation], embedder: Embedder | None = None
    ) -> None:
        self.asking = asking
        self.embedder = embedder if asking == "recall" else None
        self.conversations = conversations
        self._memories = dict[str, Memory]()

    async def open(self, stack: AsyncExitStack) -> None:
        """Fill an in-memory store for each conversation, if the product is measured."""
        if self.asking == "recall":
            for each in self.conversations:
                store = filled("memory:", [each], embedder=self.embedder)
                memory = await stack.enter_async_context(store)
                self._memories[each.listed.name] = memory

    async def halves(self, techniques: Techniques, only: int | None = None) -> list[Means]:
        """Return the means over half 1, half 2 and all conversations, or only over one half."""
        found = list[Outcome]()
        for each in self.conversations:
            if only in {None, each.listed.half}:
                found += await outcomes_of([each], self._asker(each, techniques))
        return [means(list(filter(GROUPS[group], found))) for group in HALVES]

    def _asker(self, conversation: Conversation, techniques: Techniques) -> Asker:
        memory = self._memories.get(conversation.listed.name)
        return reference([conversation], techniques) if memory is None else memory.asker(techniques)


async def table_of_gains(rankings: Rankings) -> Table:
    """Return a table of the measure turn@10 without each technique, and of the gains."""
    table = Table(
        title=f"{rankings.asking}: turn@10 without each technique, and the gain of the technique"
    )
    for column in ("without", "half 1", "half 2", "all", "gain half 1", "gain half 2"):
        table.add_column(column, justify="left" if column == "without" else "right")
    whole = await rankings.halves(STANDARD)
    table.add_row("(nothing)", *(f"{each.turn:.3f}" for each in whole), "", "")
    for name, techniques in WITHOUT.items():
        if name in VECTORS and rankings.embedder is None:
            continue
        if rankings.asking == "reference" or name in IN_RECALL:
            rows = await rankings.halves(techniques)
            table.add_row(name, *(f"{each.turn:.3f}" for each in rows), *_gains(rows, whole))
    if rankings.asking == "reference":
        for name, techniques in WITH.items():
            rows = await rankings.halves(techniques)
            shown = (f"{each.turn:.3f}" for each in rows)
            table.add_row(f"(with {name})", *shown, *_gains(whole, rows))
    return table


async def table_of_fits(rankings: Rankings) -> Table:
    """Fit weights on one half of the conversations; return a table of the other half's results."""
    table = Table(title=f"{rankings.asking}: turn@10 with weights fitted on one half")
    for column in ("fitted on", "reported on", "standard weights", "fitted weights", "weights"):
        table.add_column(column)
    for fitted, other in ((1, 2), (2, 1)):
        best = await _fit(rankings, fitted)
        before, after = [(await rankings.halves(each, other))[2].turn for each in (STANDARD, best)]
        weights = ", ".join(f"{name} {getattr(best, name):g}" for name in FITTED + FITTED_VECTORS)
        table.add_row(f"half {fitted}", f"half {other}", f"{before:.3f}", f"{after:.3f}", weights)
    return table


async def _fit(rankings: Rankings, half: int) -> Techniques:
    """Change the weights one after another as long as the result on `half` improves."""
    best, reached = STANDARD, (await rankings.halves(STANDARD, half))[2].turn
    for name in FITTED if rankings.embedder is None else (*FITTED, *FITTED_VECTORS):
        start = getattr(best, name)
        for factor in FACTORS:
            tried = best._replace(**{name: start * factor})
            value = (await rankings.halves(tried, half))[2].turn
            if value > reached + 0.0005:
                best, reached = tried, value
    return best


def _gains(less: Sequence[Means], more: Sequence[Means]) -> list[str]:
    return [f"{b.turn - a.turn:+.3f}" for a, b in zip(less[:2], more[:2], strict=True)]
