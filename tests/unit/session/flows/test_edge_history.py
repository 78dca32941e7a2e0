"""What has gone along edges, as one flow's state grows out of another."""

from __future__ import annotations

import msgspec

from perdure.session.flows.edge_history import Along, EdgeHistory, Passed


def after(before: Along, *items: str, key: str = "a=>b") -> Along:
    passing = EdgeHistory(before)
    for item in items:
        passing.add(key, item)
    return passing.after()


def test_an_item_is_held_once_and_in_the_order_it_came() -> None:
    assert after({}, "x", "y", "x") == {"a=>b": ("x", "y")}
    assert after(after({}, "x"), "x", "z") == {"a=>b": ("x", "z")}


def test_nothing_added_leaves_what_was_there() -> None:
    before = after({}, "x")
    assert after(before) is before


def test_edges_keep_their_order_and_each_its_own() -> None:
    both = after(after(after({}, "x"), "y", key="b=>c"), "z")
    assert [*both.items()] == [("a=>b", ("x", "z")), ("b=>c", ("y",))]


def test_states_that_grow_out_of_one_hold_only_their_own() -> None:
    one = after({}, "x", "y")
    left, right = after(one, "l"), after(one, "r", "l")
    assert (one, left, right) == (
        {"a=>b": ("x", "y")},
        {"a=>b": ("x", "y", "l")},
        {"a=>b": ("x", "y", "r", "l")},
    )
    held = [[item in each["a=>b"] for item in ("x", "l", "r")] for each in (one, left, right)]
    assert held == [[True, False, False], [True, True, False], [True, True, True]]


def test_a_growth_that_was_given_up_is_held_by_nobody() -> None:
    one = after({}, "x")
    EdgeHistory(one).add("a=>b", "lost")
    assert "lost" not in one["a=>b"]
    assert after(one, "y", "lost") == {"a=>b": ("x", "y", "lost")}


def test_what_was_received_is_kept_as_it_is_though_it_repeats_itself() -> None:
    received: Along = {"a=>b": ("x", "x")}
    assert after(after(received, "x", "y"), "z") == {"a=>b": ("x", "x", "y", "z")}


def test_it_is_written_as_the_tuple_it_is() -> None:
    assert msgspec.json.encode(after({}, "x", "y")) == b'{"a=>b":["x","y"]}'
    assert 1 not in Passed(("x",))
