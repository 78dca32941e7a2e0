"""Numbers in arguments of callers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure.client.amounts import MOST, amount
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.errors import EntryNotFound
from perdure.session.messages import user

ABSURD = 99_999_999_999_999_999_999


def test_amounts_within_the_limits_and_none_are_accepted() -> None:
    for value in (None, 1, 2, MOST):
        amount("limit", value, least=1)


@pytest.mark.parametrize(
    "value", [0, -1, MOST + 1, ABSURD, 10**5000], ids=["none", "less", "more", "absurd", "long"]
)
def test_error_for_a_value_out_of_range_does_not_quote_the_value(value: int) -> None:
    with pytest.raises(ValueError, match=r"limit is a whole number from 1 to") as refused:
        amount("limit", value, least=1)

    assert len(str(refused.value)) < 100


@pytest.mark.parametrize("value", [1.5, "5", b"5", [5]])
def test_value_that_is_not_an_integer_is_rejected(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^limit is a whole number, not (float|str|bytes|list)$"):
        amount("limit", value)


async def first(session: Session, after: int) -> object:
    return await anext(session.entries(after=after))


ASKS: dict[str, Callable[[Store, Session, int], Awaitable[object]]] = {
    "last": lambda _, session, value: session.messages(last=value),
    "budget_tokens": lambda _, session, value: session.context(budget_tokens=value),
    "after": lambda _, session, value: first(session, value),
    "limit of recent": lambda store, _, value: store.recent(limit=value),
    "limit of search": lambda store, _, value: store.search("x", limit=value),
}


@pytest.mark.parametrize("value", [-2, ABSURD, -ABSURD])
@pytest.mark.parametrize("name", ASKS)
async def test_every_numeric_argument_of_handles_is_checked(
    store: Store, name: str, value: int
) -> None:
    session = await store.create()
    await session.append(user("hello"))

    with pytest.raises(ValueError, match=f"^{name.partition(' ')[0]} is a whole number from"):
        await ASKS[name](store, session, value)


@pytest.mark.parametrize("value", [-2, ABSURD])
async def test_start_position_of_a_watch_is_validated(store: Store, value: int) -> None:
    session = await store.create()

    with pytest.raises(ValueError, match=r"^after is a whole number from -1 to"):
        session.watch(after=value)
    with pytest.raises(ValueError, match=r"^after is a whole number from 0 to"):
        store.watch(after=value)


async def test_budget_of_zero_is_rejected(store: Store) -> None:
    session = await store.create()

    with pytest.raises(ValueError, match=r"^budget_tokens is a whole number from 1 to"):
        await session.context(budget_tokens=0)


async def test_entry_with_huge_seq_is_not_found(store: Store) -> None:
    session = await store.create()
    await session.append(user("hello"))

    with pytest.raises(EntryNotFound):
        await session.find(str(ABSURD))
