"""Text is written plain, quoted or as a block, depending on its content."""

from __future__ import annotations

import io
from typing import Any

from perdure.yaml.representer import YAML, PlainRepresenter


def written(value: object) -> str:
    writer: Any = YAML(typ="safe", pure=True)
    writer.Representer = PlainRepresenter
    writer.default_flow_style = False
    target = io.StringIO()
    writer.dump(value, target)
    return target.getvalue()


def test_written_text_is_read_back_as_the_same_text() -> None:
    value = {"a": "word", "b": "no", "c": "two\nlines\n"}
    assert written(value) == 'a: word\nb: "no"\nc: |\n  two\n  lines\n'


def test_repeated_value_is_written_without_yaml_aliases() -> None:
    shared = ["x"]
    assert written([shared, shared]) == "- - x\n- - x\n"
