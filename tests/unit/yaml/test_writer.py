"""Plain data is written as YAML that reads as the same data."""

from __future__ import annotations

from perdure.yaml.nodes import YamlReader
from perdure.yaml.writer import yaml_of
from tests.fakes.samples import case


def read(text: str) -> object:
    """Return the value of `text`, read strictly."""
    reader = YamlReader()
    root = reader.root(text)
    assert root is not None, reader.faults
    data = reader.data(root)
    assert not reader.faults
    return data


def test_mapping_keys_are_sorted_and_list_items_keep_their_order() -> None:
    assert yaml_of({"b": [2, 1], "a": None}) == "a: null\nb:\n  - 2\n  - 1\n"


def test_ambiguous_text_is_quoted() -> None:
    for text in [
        *("no", "Yes", "~", "null", "1e3", "0x1F", "2020-01-01", "=", "<<", "- a", "a: b", "# no"),
        *("a\n b\n", "\na", "a \nb", "a\n\n", "\ttab\n", "a\r\nb", "x" * 5000, "é" * 300 + "\n"),
        *(
            "\u2028",
            "\ufeffx\ny",
            "\x00",
            "\x85",
            "%YAML 1.1",
            "---",
            "...\n...",
            "a\n---\nb",
            "😀\n!",
        ),
    ]:
        with case(text):
            data = {"said": text, text: [text]}
            assert read(yaml_of(data)) == data


def test_written_yaml_has_no_folding_and_no_anchors() -> None:
    shared: dict[str, object] = {"long": "word " * 2000}
    text = yaml_of({"a": shared, "b": shared})
    assert "&" not in text
    assert max(map(len, text.splitlines())) > 9000
