"""Errors of perdure can be pickled, to pass them from one process to another."""

from __future__ import annotations

import copy
import pickle

from perdure.errors import AmbiguousId, PerdureError, StoreUnavailable, TurnSuspended, WrongArgument


def all_kinds(kind: type[PerdureError] = PerdureError) -> list[type[PerdureError]]:
    return [kind, *(each for below in kind.__subclasses__() for each in all_kinds(below))]


def assert_same(error: PerdureError, again: PerdureError) -> None:
    assert (type(again), str(again), again.facts()) == (type(error), str(error), error.facts())


def test_pickled_error_has_its_message_and_facts() -> None:
    for error in (
        StoreUnavailable("s.db", "it was closed", is_lasting=True),
        AmbiguousId("01a", ("01ab", "01ac")),
        WrongArgument("limit is -1", argument="limit"),
        TurnSuspended(),
    ):
        assert error.facts() or isinstance(error, TurnSuspended)
        assert_same(error, pickle.loads(pickle.dumps(error)))
        assert_same(error, copy.copy(error))


def test_error_of_each_class_can_be_pickled() -> None:
    kinds = all_kinds()
    assert len(kinds) > 50
    for kind in kinds:
        error = kind.__new__(kind, "what failed")
        error.__dict__.update(reason="why", number=3)
        assert_same(error, pickle.loads(pickle.dumps(error)))
