from __future__ import annotations

import msgspec

from perdure.session.flows.distinct import Distinct, distinct


def test_added_string_is_found_once_and_in_order() -> None:
    grown = Distinct().plus("x").plus("y").plus("x")
    assert grown == ("x", "y")
    assert "y" in grown
    assert "z" not in grown
    assert grown.has_all(["x", "y"])
    assert not grown.has_all(["x", "z"])
    assert msgspec.json.encode(grown) == b'["x","y"]'


def test_extensions_of_the_same_strings_are_independent() -> None:
    one = Distinct(("x",))
    left, right = one.plus("l"), one.plus("r")
    found = [[item in each for item in ("x", "l", "r")] for each in (one, left, right)]
    assert found == [[True, False, False], [True, True, False], [True, False, True]]
    assert (left.plus("r"), right.plus("l")) == (("x", "l", "r"), ("x", "r", "l"))


def test_removed_strings_are_gone_and_the_rest_keeps_its_order() -> None:
    three = Distinct(("x", "y", "z"))
    assert three.without("nothing") is three
    fewer = three.without("x", "nothing")
    assert (fewer, fewer.plus("x")) == (("y", "z"), ("y", "z", "x"))
    assert "x" in three


def test_long_extension_copies_no_table() -> None:
    grown = Distinct()
    for n in range(500):
        grown = grown.plus(str(n))
    assert grown.places is Distinct.plus(grown, "more").places


def test_plain_tuple_gets_a_lookup_table_and_preserves_repetitions() -> None:
    assert distinct(("x", "x")) == ("x", "x")
    assert distinct(("x", "x")).plus("y").plus("y") == ("x", "x", "y")
    assert distinct(grown := Distinct(("x",))) is grown
