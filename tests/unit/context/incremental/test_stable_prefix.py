"""The settled messages of a conversation, which are extended piece by piece."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.context.emission import ContextMessage
from perdure.context.incremental.stable_prefix import (
    Layers,
    Settled,
    newest_reported,
    scaled_sum,
    sizes_of,
)
from perdure.context.tool_pairs import pair_after
from perdure.session.ids import EntryId
from perdure.session.messages import Message, Usage, assistant, tool_call, tool_result, user


def numbered(*said: Message) -> list[ContextMessage]:
    return [ContextMessage(message, EntryId(f"s/{n}")) for n, message in enumerate(said)]


def settled(*groups: list[ContextMessage]) -> Settled:
    made = Settled()
    for group in groups:
        more = pair_after(group, made.calls)
        assert more is not None
        made = made.with_more(tuple(group), more)
    return made


def told(made: Settled) -> dict[str, object]:
    """Return the content of `made`, with its internal layers joined."""
    layered = {
        name: getattr(made, name).whole() for name in ("said", "paired", "sizes", "messages")
    }
    calls = made.calls
    ids = {name: frozenset[str]().union(*getattr(calls, name).layers) for name in _OF_IDS}
    rest = {name: getattr(made, name) for name in made.__struct_fields__ if name != "calls"}
    return {**rest, **layered, **ids, "owed": calls.owed, "repeats": calls.repeats}


_OF_IDS = ("answered", "sent")


def test_stable_prefix_built_in_two_steps_equals_prefix_built_in_one_step() -> None:
    said = numbered(
        user("one"),
        user("two"),
        assistant("so", tool_call("c", "look"), usage=Usage(7, 1)),
        tool_result("c", "seen"),
        assistant("done", usage=Usage(30, 2)),
        user("three"),
    )
    whole = settled(said)
    for cut in range(1, len(said)):
        if said[cut].message.role != "tool":
            assert told(settled(said[:cut], said[cut:])) == told(whole)
    assert [message.text for message in whole.messages] == ["one\n\ntwo", "so", "seen", "done"]
    assert whole.last is not None
    assert whole.last.message.text == "three"
    assert (whole.reported_at, whole.reported) == (4, 32)


def test_token_estimate_of_each_message_is_rounded_up_separately() -> None:
    sizes = sizes_of(numbered(user("12345"), user("1")))
    assert sizes == (1.25, 0.25)
    assert scaled_sum(sizes, 1.0) == 3
    assert scaled_sum(sizes, 4.0) == 6


def test_usage_of_interrupted_answer_does_not_count() -> None:
    cut = assistant("so", usage=Usage(9, 9), stop_reason="error")
    assert newest_reported(numbered(assistant("x", usage=Usage(1, 1)), cut)) == (0, 2)
    assert newest_reported(numbered(cut)) == (-1, 0)


@given(st.lists(st.lists(st.integers(), max_size=9)), st.integers(-1, 400))
def test_layers_contain_all_appended_items_in_order(added: list[list[int]], place: int) -> None:
    layers = Layers[int]()
    whole: tuple[int, ...] = ()
    for more in added:
        layers, whole = layers.and_then(tuple(more)), (*whole, *more)
        assert tuple(layers) == layers.whole() == whole
        assert len(layers) == len(whole)
    assert layers.whole((1, 2)) == (*whole, 1, 2)
    assert layers.after(place) == whole[place + 1 :]


def test_sequence_has_few_layers_after_a_thousand_extensions() -> None:
    layers = Layers[int]().and_then(tuple(range(10_000)))
    (longest,) = layers.layers
    for n in range(1_000):
        layers = layers.and_then((n,))
        assert len(layers.layers) < 12
    assert next(iter(layers.layers)) is longest
    assert len(layers) == 11_000


def test_extending_a_sequence_does_not_change_the_original() -> None:
    before = Layers[int]().and_then((1, 2, 3))
    assert before.and_then((4,)).whole() == (1, 2, 3, 4)
    assert before.and_then((5,)).whole() == (1, 2, 3, 5)
    assert before.and_then(()) is before
