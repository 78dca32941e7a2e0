"""The parser reads only plain data."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.yaml.nodes import MAX_DEPTH
from perdure.yaml.parser import PlainYaml, YAMLError


def load(text: str) -> object:
    parser: Any = PlainYaml()
    return parser.load(text)


def test_boolean_words_of_older_yaml_are_text() -> None:
    assert load("a: yes\nb: on\n") == {"a": "yes", "b": "on"}


def test_brackets_deeper_than_the_limit_are_refused() -> None:
    for opened in (MAX_DEPTH + 2, 2_000):
        with pytest.raises(YAMLError, match="nested too deep"):
            load("[" * opened + "]" * opened)


def test_yaml_tag_of_an_object_is_rejected() -> None:
    with pytest.raises(YAMLError):
        load("!!python/object/apply:os.getcwd []")
