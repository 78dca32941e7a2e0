"""Strict reading of YAML: all faults are reported together, each with its line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.yaml.nodes import YamlNode, YamlReader


def node_of(text: str) -> tuple[YamlReader, YamlNode]:
    reader = YamlReader()
    root = reader.root(text)
    assert root is not None, reader.faults
    return reader, root


def data_of(text: str) -> object:
    reader, root = node_of(text)
    data = reader.data(root)
    assert reader.faults == ()
    return data


def test_plain_yaml_gives_the_same_data_as_json() -> None:
    assert data_of(
        "a: [1, -2, +3, 0x10, 1_000, 1.5, true, False, null, ~, yes, on, '5', 2020-01-01]\n"
        "b:\n  c: |\n    two\n    lines\n"
    ) == {
        "a": [1, -2, 3, 16, 1000, 1.5, True, False, None, None, "yes", "on", "5", "2020-01-01"],
        "b": {"c": "two\nlines\n"},
    }


def test_alias_has_the_value_of_its_anchor() -> None:
    assert data_of("a: &x {n: 1}\nb: *x") == {"a": {"n": 1}, "b": {"n": 1}}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "line 1: the file is empty"),
        ("# only a comment", "line 1: the file is empty"),
        ("a: [1,\nb: 2", "line 2: "),
        ("a: *nobody", "line 1: found undefined alias 'nobody'"),
        ("a: 1\n---\nb: 2", "line 2: "),
    ],
)
def test_file_with_zero_or_several_documents_is_a_fault(text: str, fault: str) -> None:
    reader = YamlReader()
    assert reader.root(text) is None
    assert len(reader.faults) == 1
    assert reader.faults[0].startswith(fault)


def test_yaml_tag_creates_no_object() -> None:
    reader, root = node_of("!!python/object/apply:os.system ['true']")
    reader.mapping(root, ("a",))
    assert reader.faults == (
        "line 1: expected a mapping with a, found python/object/apply:os.system",
    )


def test_self_referencing_alias_is_read_without_endless_loop() -> None:
    reader, root = node_of("a: &x [*x]")
    reader.data(root)
    assert reader.faults == ("line 1: nested too deep",)


def test_all_faults_of_a_mapping_are_found() -> None:
    reader, root = node_of("a: 1\nb: 2\na: 3\n5: x\n")
    fields = reader.mapping(root, ("a", "needed"), required=("needed",))
    assert set(fields) == {"a"}
    assert reader.faults == (
        "line 1: 'needed' is missing",
        "line 2: 'b' is unknown here (known: a, needed)",
        "line 3: 'a' is a duplicate key",
        "line 4: expected text as a key, found a number",
        "line 4: '5' is unknown here (known: a, needed)",
    )


def test_error_for_an_unknown_key_suggests_the_intended_key() -> None:
    reader = YamlReader({"instructions": "prompt", "elsewhere": "other"})
    root = reader.root("modle: 1\ninstructions: 2\nelsewhere: 3\n")
    assert root is not None
    reader.mapping(root, ("model", "prompt"))
    assert reader.faults == (
        "line 1: 'modle' is unknown here; did you mean 'model'?",
        "line 2: 'instructions' is unknown here; did you mean 'prompt'?",
        "line 3: 'elsewhere' is unknown here (known: model, prompt)",
    )


def test_value_of_the_wrong_kind_is_read_as_the_default() -> None:
    reader, root = node_of("[true, 1.5, -1, x, [], {}, null]")
    boolean, fraction, negative, word, items, mapping, nothing = reader.items(root)
    assert reader.whole(boolean) == 0
    assert reader.whole(fraction, 3) == 3
    assert reader.whole(negative) == 0
    assert reader.number(negative) == 0.0
    assert reader.boolean(word) is False
    assert reader.text(items) == ""
    assert reader.choice(word, ("a", "b")) == "a"
    assert reader.items(mapping) == ()
    assert reader.mapping(nothing, ("k",)) == {}
    assert len(reader.faults) == 9


def test_values_of_the_right_kind_are_read() -> None:
    reader, root = node_of("[true, 1.5, 7, x, 3]")
    boolean, fraction, whole, word, number = reader.items(root)
    assert reader.boolean(boolean) is True
    assert reader.number(fraction) == 1.5
    assert reader.number(number) == 3.0
    assert reader.whole(whole, 7) == 7
    assert reader.text(word) == "x"
    assert reader.choice(word, ("a", "x")) == "x"
    assert reader.faults == ()


@pytest.mark.parametrize("text", ["[.nan]", "[.inf]", "[-.inf]", "[1e999]"])
def test_numbers_without_json_form_are_faults(text: str) -> None:
    reader, root = node_of(text)
    assert reader.data(root) == [0.0]
    assert "cannot be written as JSON" in reader.faults[0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[!!int x]", "'x' is no whole number"),
        ("[!!float x]", "'x' is no number"),
        ("[!!bool x]", "'x' is neither true nor false"),
        (f"[{'1' * 5000}]", "is no whole number that can be read"),
        ('["a\\ud800"]', "half of a character pair"),
    ],
)
def test_invalid_scalar_is_a_fault_with_its_line(text: str, told: str) -> None:
    reader, root = node_of(f"\n{text}")
    reader.data(root)
    (fault,) = reader.faults
    assert fault.startswith("line 2: ")
    assert told in fault
    assert len(fault) < 100


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('a: 1\nb: "\x07"\n', "line 2: the character '\\x07' cannot stand here"),
        ("a: 1\n\nb:\nc: 2\n", "line 3: expected text"),
    ],
)
def test_fault_has_the_line_number_that_an_editor_shows(text: str, told: str) -> None:
    reader = YamlReader()
    root = reader.root(text)
    if root is not None:
        reader.text(reader.mapping(root, ("a", "b", "c"))["b"])
    (fault,) = reader.faults
    assert fault.startswith(told)


def test_values_repeated_by_yaml_aliases_are_limited() -> None:
    levels = "\n".join(
        f"l{n}: &l{n} [{', '.join(f'*l{n - 1}' for _ in range(9))}]" for n in range(1, 12)
    )
    reader, _ = node_of(f"l0: &l0 [x]\n{levels}")
    assert len(reader.faults) == 1
    assert "aliases repeat more than 20000 values" in reader.faults[0]


@given(st.text(max_size=60))
def test_reader_never_raises_for_any_text(text: str) -> None:
    reader = YamlReader()
    root = reader.root(text)
    if root is None:
        assert reader.faults
    else:
        reader.data(root)
