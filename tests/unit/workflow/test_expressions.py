"""Placeholders in double braces are parsed or reported as errors; unclosed ones are text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.workflow.expressions import LONGEST, Filter, Placeholder, template_of
from perdure.workflow.templates import neutralise


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ("inputs.topic", Placeholder("inputs", "topic")),
        (" inputs['a b'] ", Placeholder("inputs", "a b")),
        ("ctx.code-style", Placeholder("ctx", "code-style")),
        ('run.outputs["turn-1"]', Placeholder("run.outputs", "turn-1")),
        ("run.outputs.plan", Placeholder("run.outputs", "plan")),
        ("run.id", Placeholder("run.id")),
        ("inputs.x | json", Placeholder("inputs", "x", (Filter("json"),))),
        (
            "inputs.x|read_file|length",
            Placeholder("inputs", "x", (Filter("read_file"), Filter("length"))),
        ),
        (
            'inputs.x | default("}} | {{")',
            Placeholder("inputs", "x", (Filter("default", "}} | {{"),)),
        ),
        (r"inputs.x | default('it\'s')", Placeholder("inputs", "x", (Filter("default", "it's"),))),
        ("inputs.x | default(1.5)", Placeholder("inputs", "x", (Filter("default", 1.5),))),
        ("inputs.x | default(false)", Placeholder("inputs", "x", (Filter("default", False),))),
    ],
)
def test_valid_placeholder_is_parsed(inner: str, expected: Placeholder) -> None:
    template = template_of(f"a {{{{{inner}}}}} b")
    assert template.parts == ("a ", expected, " b")
    assert template.faults == ()
    assert template.placeholders == (expected,)
    assert expected.has_default == ("default" in inner)


@pytest.mark.parametrize(
    ("inner", "why"),
    [
        ("", "expected inputs.NAME"),
        ("name", "expected inputs.NAME"),
        ("inputs.x.y", "expected inputs.NAME"),
        ("run.outputs", "expected inputs.NAME"),
        ("secrets.KEY", "secrets are never filled into a prompt"),
        ("inputs.x | upper", "'upper' is no filter; there are: default, json, length, read_file"),
        ("inputs.x | default", "default needs a text"),
        ("inputs.x | default(y)", "default needs a text"),
        ("inputs.x | default(')", "expected inputs.NAME"),
        ("inputs.x | json(1)", "json takes nothing in brackets"),
        ("inputs.x || json", "expected inputs.NAME"),
        ("it's", "expected inputs.NAME"),
        ("__import__('os').system('x')", "expected inputs.NAME"),
    ],
)
def test_invalid_placeholder_is_a_fault(inner: str, why: str) -> None:
    text = f"a {{{{{inner}}}}} b"
    template = template_of(text)
    assert template.parts == (text,)
    (fault,) = template.faults
    assert why in fault


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{ { inputs.x }}",
        "{{ inputs.x",
        "{{ inputs.x }\n}",
        "}} {{",
        "{{" + " " * LONGEST + "}}",
    ],
)
def test_unclosed_placeholder_is_text(text: str) -> None:
    template = template_of(text)
    assert "".join(str(part) for part in template.parts) == text
    assert template.faults == ()


def test_unclosed_braces_before_a_placeholder_stay_text() -> None:
    assert template_of("{{ a {{inputs.x}}").parts == ("{{ a ", Placeholder("inputs", "x"))


@given(st.text(st.sampled_from("{}|\"'\\ \nainputs.x()"), max_size=60))
def test_any_text_is_parsed_without_loss(text: str) -> None:
    template = template_of(text)
    plain = [part for part in template.parts if isinstance(part, str)]
    assert all(part in text for part in plain)
    if not template.placeholders:
        assert "".join(plain) == text


@given(st.text(st.sampled_from("{}|\"' inputs.xrundefault()[]"), max_size=80) | st.text())
def test_escaped_text_contains_no_placeholder(text: str) -> None:
    safe = neutralise(text)
    assert template_of(safe).parts == ((safe,) if safe else ())
    assert template_of(safe).faults == ()
