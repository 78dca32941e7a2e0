"""Text is written plain, in quotes or as a block, by what it contains."""

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


def test_text_is_written_in_the_form_that_reads_back_as_text() -> None:
    value = {"a": "word", "b": "no", "c": "two\nlines\n"}
    assert written(value) == 'a: word\nb: "no"\nc: |\n  two\n  lines\n'


def test_repeated_value_is_written_out() -> None:
    shared = ["x"]
    assert written([shared, shared]) == "- - x\n- - x\n"
