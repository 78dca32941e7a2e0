"""The artifacts sent along edges, over successive states of a flow."""

from __future__ import annotations

from typing import NoReturn

import msgspec

from perdure.session.flows.distinct import Distinct
from perdure.session.flows.edge_history import Along, EdgeHistory, Indexed, newest_edge_with


def after(before: Along, *items: str, key: str = "a=>b") -> Along:
    passing = EdgeHistory(before)
    for item in items:
        passing.add(key, item)
    return passing.after()


def test_repeated_item_is_stored_once_in_order() -> None:
    assert after({}, "x", "y", "x") == {"a=>b": ("x", "y")}
    assert after(after({}, "x"), "x", "z") == {"a=>b": ("x", "z")}


def test_adding_no_items_returns_the_same_edge_history() -> None:
    before = after({}, "x")
    assert after(before) is before


def test_edge_history_keeps_the_order_of_additions() -> None:
    both = after(after(after({}, "x"), "y", key="b=>c"), "z")
    assert [*both.items()] == [("a=>b", ("x", "z")), ("b=>c", ("y",))]


def test_two_additions_to_one_edge_history_do_not_affect_each_other() -> None:
    one = after({}, "x", "y")
    left, right = after(one, "l"), after(one, "r", "l")
    assert (one, left, right) == (
        {"a=>b": ("x", "y")},
        {"a=>b": ("x", "y", "l")},
        {"a=>b": ("x", "y", "r", "l")},
    )
    held = [[item in each["a=>b"] for item in ("x", "l", "r")] for each in (one, left, right)]
    assert held == [[True, False, False], [True, True, False], [True, True, True]]


def test_addition_to_an_edge_history_does_not_change_the_original() -> None:
    one = after({}, "x")
    EdgeHistory(one).add("a=>b", "lost")
    assert "lost" not in one["a=>b"]
    assert after(one, "y", "lost") == {"a=>b": ("x", "y", "lost")}


def test_repeated_artifacts_of_a_plain_tuple_are_kept() -> None:
    received: Along = {"a=>b": ("x", "x")}
    assert after(after(received, "x", "y"), "z") == {"a=>b": ("x", "x", "y", "z")}


def test_edge_history_is_encoded_as_a_tuple() -> None:
    assert msgspec.json.encode(after({}, "x", "y")) == b'{"a=>b":["x","y"]}'
    assert 1 not in Distinct(("x",))


class Unread(Indexed):
    """A history of edges that fails the test if all edges are read."""

    def __iter__(self) -> NoReturn:
        raise AssertionError("all edges were read")

    items = keys = values = __iter__


def test_edge_of_item_is_found_without_reading_all_edges() -> None:
    passing = EdgeHistory({})
    for n in range(500):
        passing.add(f"n{n}=>n{n + 1}", f"{n}.md")
        passing.add(f"n{n}=>n{n + 1}", "same")
    sent = passing.after()
    assert isinstance(sent, Indexed)
    unread = Unread(sent, sent.found)
    assert newest_edge_with(unread, "250.md") == "n250=>n251"
    assert newest_edge_with(unread, "same") == "n499=>n500"
    assert newest_edge_with(unread, "nothing") is None


def test_edge_lookup_uses_the_given_copy_of_the_history() -> None:
    one = after({}, "x")
    left, right = after(one, "l", key="b=>c"), after(one, "x", key="b=>c")
    found = [newest_edge_with(each, "x") for each in (one, left, right)]
    assert found == ["a=>b", "a=>b", "b=>c"]
    assert newest_edge_with(right, "l") is None
    assert newest_edge_with({"a=>b": ("x",)}, "x") == "a=>b"
