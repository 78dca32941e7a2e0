from __future__ import annotations

import msgspec

from perdure.session.flows.distinct import Distinct, distinct


def test_repeated_string_is_added_once() -> None:
    grown = Distinct().plus("x").plus("y").plus("x")
    assert grown == ("x", "y")
    assert "y" in grown
    assert "z" not in grown
    assert grown.has_all(["x", "y"])
    assert not grown.has_all(["x", "z"])
    assert msgspec.json.encode(grown) == b'["x","y"]'


def test_two_extensions_of_the_same_strings_do_not_affect_each_other() -> None:
    one = Distinct(("x",))
    left, right = one.plus("l"), one.plus("r")
    found = [[item in each for item in ("x", "l", "r")] for each in (one, left, right)]
    assert found == [[True, False, False], [True, True, False], [True, False, True]]
    assert (left.plus("r"), right.plus("l")) == (("x", "l", "r"), ("x", "r", "l"))


def test_removal_of_strings_keeps_the_order_of_the_remaining_strings() -> None:
    three = Distinct(("x", "y", "z"))
    assert three.without("nothing") is three
    fewer = three.without("x", "nothing")
    assert (fewer, fewer.plus("x")) == (("y", "z"), ("y", "z", "x"))
    assert "x" in three


def test_adding_a_string_does_not_copy_the_lookup_table() -> None:
    grown = Distinct()
    for n in range(500):
        grown = grown.plus(str(n))
    assert grown.places is Distinct.plus(grown, "more").places


def test_repeated_strings_of_a_plain_tuple_are_kept() -> None:
    assert distinct(("x", "x")) == ("x", "x")
    assert distinct(("x", "x")).plus("y").plus("y") == ("x", "x", "y")
    assert distinct(grown := Distinct(("x",))) is grown
