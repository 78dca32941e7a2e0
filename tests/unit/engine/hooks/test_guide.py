"""The table in docs/guides/hooks.md lists every hook point with its class and fields."""

from __future__ import annotations

import inspect
import re
from typing import Any, get_args

import perdure
from perdure import Hooks, types
from perdure.engine.hooks.points import BeforeModelCall, HookName, HookPoint
from perdure.models.protocol import ModelRequest
from tests.conftest import REPOSITORY

GUIDE = REPOSITORY / "docs" / "guides" / "hooks.md"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \| (.*?) ?(?<!\\)\|", re.MULTILINE)


def test_table_of_the_hook_guide_has_the_fields_of_every_hook() -> None:
    rows = {
        name: (getattr(types, point), re.findall(r"`(.+?)`", fields.replace("\\|", "|")))
        for name, point, fields in ROW.findall(GUIDE.read_text("utf-8"))
    }
    assert rows == {
        point.name: (
            point,
            [
                f"{name}: {type_}"
                for name, type_ in inspect.get_annotations(point).items()
                if not str(type_).startswith("ClassVar")
            ],
        )
        for point in HookPoint.__subclasses__()
    }
    assert set(rows) == set(get_args(HookName))


def test_example_of_the_guide_hides_card_numbers_from_the_model() -> None:
    (example,) = (each for each in BLOCK.findall(GUIDE.read_text("utf-8")) if "hide_cards" in each)
    names: dict[str, Any] = {"runtime": Hooks()}
    exec(compile(example, GUIDE, "exec"), names)
    request = ModelRequest("m", [perdure.user("pay with 1234 5678 9012 3456 now")])
    sent = names["hide_cards"](BeforeModelCall("s", request))
    assert [message.text for message in sent.messages] == ["pay with [card] now"]
    assert request.messages[0].text == "pay with 1234 5678 9012 3456 now"
