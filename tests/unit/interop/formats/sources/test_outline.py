from __future__ import annotations

import msgspec
import pytest

from perdure.errors import FormatError
from perdure.interop.formats.items import Item
from perdure.interop.formats.sources.outline import Outline, PassingItems, Whole, with_usage
from perdure.session.kinds import OPAQUE, Compaction
from perdure.session.messages import Message, Usage, assistant, user
from perdure.session.notes import ImportedRecord, Label, SessionInfoChanged

USAGE = Usage(1, 2)
ITEMS = (
    Item(user("a"), 1, 0, 9, at=5, alias="a"),
    Item(Compaction("x"), 2, 10, 9, parent=0, references={"first_kept": 0}),
    Item(b"\xff", 3, 20, 1, parent=1, alias="b"),
    Item(Label("l"), 4, 22, 9, about=2, at=-7),
    Item(assistant("b"), 5, 40, 9, ordinal=1, parent=2, group="g"),
    Item(ImportedRecord("f", "t"), 6, 50, 9, about=4),
)
TITLE = SessionInfoChanged(title="t")


def outline_of(items: tuple[Item, ...]) -> Outline:
    outline = Outline()
    for item in items:
        outline.add(item, None)
    return outline


def pass_on(items: tuple[Item, ...]) -> None:
    passing = PassingItems(outline_of(ITEMS), "f")
    for item in items:
        passing.add(item, None)


def test_outline_of_an_item_contains_every_field_except_the_body() -> None:
    outline = outline_of(ITEMS)
    assert len(outline) == len(ITEMS)
    for item, known in zip(ITEMS, outline, strict=True):
        assert (known.kind, known.lane, known.version) == (item.kind, item.lane, item.version)
        assert msgspec.structs.replace(known, body=item.body) == item
    assert [item.number for item in outline[1:3]] == [2, 3]
    assert outline[0].body == Message("user", ())
    assert outline[2].kind == OPAQUE
    assert set(outline.opaque) == {2}


def test_outline_of_an_item_does_not_depend_on_the_body() -> None:
    long = msgspec.structs.replace(ITEMS[0], body=user("a" * 100_000))
    assert outline_of((long,))[0] == outline_of(ITEMS)[0]


def test_reading_twice_gives_the_same_items_as_reading_once() -> None:
    whole, outline = Whole(), Outline()
    for items in (whole, outline):
        for item in ITEMS:
            items.add(item, TITLE if item.number == 6 else None)
        items.set_usage(4, USAGE)
        items.choose(5)
    passing = PassingItems(outline, "f")
    for item in ITEMS:
        passing.add(item, TITLE if item.number == 6 else None)
    passing.set_usage(0, USAGE)
    passing.choose(3)
    passing.check_complete()
    assert passing.waiting_bytes == sum(item.length for item in ITEMS)
    taken = passing.take()
    assert taken == whole.items
    assert (taken[4].body, taken[5].body) == (assistant("b", usage=USAGE), TITLE)
    assert (taken[5].about, outline[5].about) == (None, None)
    assert (passing.take(), passing.waiting_bytes, len(passing)) == ([], 0, len(ITEMS))
    assert passing[4] == outline[4]


def test_usage_is_not_added_to_an_item_without_a_message() -> None:
    assert with_usage(ITEMS[1], USAGE) == ITEMS[1]


@pytest.mark.parametrize(
    "items", [ITEMS[1:], (*ITEMS, ITEMS[0]), (msgspec.structs.replace(ITEMS[0], offset=3),)]
)
def test_source_changed_before_second_reading_is_rejected(items: tuple[Item, ...]) -> None:
    with pytest.raises(FormatError, match="changed while it was read"):
        pass_on(items)


def test_source_shortened_before_second_reading_is_rejected() -> None:
    passing = PassingItems(outline_of(ITEMS), "f")
    passing.add(ITEMS[0], None)
    with pytest.raises(FormatError, match="changed while it was read"):
        passing.check_complete()
