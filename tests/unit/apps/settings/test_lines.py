import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.apps.settings.lines import lines_of, nodes_of

TEXT = '''# a file = with traps
title = "a # b = [c"   # comment
many = [
    "x = 1", # no key
    'y',
]
long = """
key = 1
[table]
"""

[store]   # here
"quoted key" = {inner = 1, more = [2]}
a.b.c = 3
[[list.of]]
x = 1
[ list . more ]
y = 0.5
'''


def test_every_key_has_its_line_number() -> None:
    lines = lines_of(TEXT)
    assert lines[("title",)] == 2
    assert lines[("many",)] == 3
    assert lines[("long",)] == 7
    assert lines[("store",)] == 12
    assert lines[("store", "quoted key")] == 13
    assert lines[("store", "a", "b", "c")] == 14
    assert lines[("list", "of")] == 15
    assert lines[("list", "more", "y")] == 18
    assert ("key",) not in lines
    assert ("table",) not in lines


def test_items_of_an_array_have_their_own_lines() -> None:
    text = 'a = [ # 1, [2\n "x,y",\n [\n1, 2], {b = 1}, "]", \n"""z\n""", 3]\nc = {d = 1}\n'
    root = nodes_of(tomllib.loads(text), text)
    (_, items), (_, table) = root.pairs
    assert [item.line for item in items.items] == [2, 3, 4, 4, 5, 6]
    assert [value.line for _, value in (*items.items[2].pairs, *table.pairs)] == [4, 7]


def test_values_have_their_type_and_line() -> None:
    text = 'a = 1\nb = 1.5\nc = true\nd = "x"\ne = 2020-01-01\nf = [1]\ng = {h = inf}\n'
    root = nodes_of(tomllib.loads(text), text)
    kinds = {key.text: (value.kind, value.line) for key, value in root.pairs}
    assert kinds == {
        "a": ("int", 1), "b": ("float", 2), "c": ("bool", 3), "d": ("str", 4),
        "e": ("timestamp", 5), "f": ("seq", 6), "g": ("map", 7),
    }  # fmt: skip


strings = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12)


@given(st.lists(strings, min_size=1, max_size=6), st.booleans())
@settings(max_examples=40, deadline=None)
def test_text_in_a_value_does_not_change_line_numbers(values: list[str], is_long: bool) -> None:
    quoted = [value.replace("\\", "\\\\").replace('"', '\\"') for value in values]
    mark = '"""' if is_long else '"'
    text = "".join(f"k{n} = {mark}{value}{mark} # {n}\n" for n, value in enumerate(quoted))
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    assert [lines_of(text)[(f"k{n}",)] for n in range(len(values))] == [
        n + 1 for n in range(len(values))
    ]


@pytest.mark.parametrize("text", ["", "# only\n", "\n\n"])
def test_settings_file_without_keys_has_no_line_numbers(text: str) -> None:
    assert lines_of(text) == {}
