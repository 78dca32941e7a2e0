"""Templates are filled once; inserted values are never scanned again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import ConfigError
from perdure.workflow.expressions import template_of
from perdure.workflow.substitution import Fillings, fill_template

FILLINGS = Fillings(
    inputs={"topic": "tides", "count": 3, "is_long": True, "file": "notes.md"},
    context={"style": "short"},
    outputs={"plan": 'say "hi"'},
    run_id="r-1",
)


def told(text: str, fillings: Fillings = FILLINGS) -> str:
    return fill_template(template_of(text), fillings, lambda path: f"<{path}>")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("On {{inputs.topic}}, {{ctx.style}}.", "On tides, short."),
        ("{{inputs.count}} {{inputs.is_long}}", "3 true"),
        ('{{run.outputs["plan"]}}', 'say "hi"'),
        ('{{run.outputs["plan"] | json}}', '"say \\"hi\\""'),
        ("{{inputs.topic | length}}", "5"),
        ("{{inputs.file | read_file}}", "<notes.md>"),
        ("{{inputs.file | read_file | length}}", "10"),
        ("{{inputs.none | default('x')}}", "x"),
        ("{{inputs.none | default('x') | json}}", '"x"'),
        ("{{inputs.topic | default('x')}}", "tides"),
        ("{{inputs.none | json | default('x')}}", "x"),
        ("{{run.id}}", "r-1"),
    ],
)
def test_placeholders_are_replaced_by_values(text: str, expected: str) -> None:
    assert told(text) == expected


@pytest.mark.parametrize("text", ["{{inputs.none}}", "{{ctx.none | json}}", "{{run.outputs.none}}"])
def test_missing_value_raises_config_error(text: str) -> None:
    with pytest.raises(ConfigError, match="has no value"):
        told(text)


def test_unreadable_file_raises_config_error() -> None:
    def fail(path: str) -> str:
        raise ConfigError(f"{path} is gone")

    with pytest.raises(ConfigError, match=r"notes\.md is gone"):
        fill_template(template_of("{{inputs.file | read_file}}"), FILLINGS, fail)


@given(st.text())
def test_inserted_values_are_not_scanned_for_placeholders(text: str) -> None:
    said = f"{text}{{{{inputs.other}}}} {{{{run.id}}}}"
    fillings = Fillings(inputs={"x": said, "other": "no"}, outputs={"n": said}, run_id="no")
    assert told("{{inputs.x}}|{{run.outputs.n}}", fillings) == f"{said}|{said}"
