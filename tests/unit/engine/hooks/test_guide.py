"""The table in docs/guides/hooks.md lists every hook point with its class and fields."""

from __future__ import annotations

import inspect
import re
from typing import get_args

from perdure import types
from perdure.engine.hooks.points import HookName, HookPoint
from tests.conftest import REPOSITORY

GUIDE = REPOSITORY / "docs" / "guides" / "hooks.md"
ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \| (.*?) ?(?<!\\)\|", re.MULTILINE)


def test_table_of_the_guide_has_the_fields_of_every_point() -> None:
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
