"""Log lines of the program itself."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from perdure.apps.cli.main import set_up_logs
from perdure.errors import ConfigError
from perdure.events.scope import within

KEY = "sk-ant-" + "a1B2" * 8
LOG = logging.getLogger("perdure.test")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("perdure")
    before = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def written(asked: str) -> str:
    stream = io.StringIO()
    set_up_logs({"PERDURE_LOG": asked}, stream)
    with within(flow="f", role="writer", session="s", turn=2):
        LOG.info("two\nlines with %s", KEY)
        logging.getLogger("library").info("of no concern")
        try:
            raise ValueError(f"no {KEY}")
        except ValueError:
            LOG.exception("it failed")
    return stream.getvalue()


@pytest.mark.parametrize("asked", ["", "off"])
def test_no_log_is_written_by_default(asked: str) -> None:
    assert written(asked) == ""


def test_log_line_contains_its_session() -> None:
    first = written("info").splitlines()[0]
    assert "info perdure.test: two lines with [redacted]" in first
    assert first.endswith("flow=f role=writer session=s turn=2")


def test_json_log_lines_are_machine_readable() -> None:
    first, second = map(json.loads, written("info,json").splitlines())
    assert first["message"] == "two lines with [redacted]"
    assert (first["level"], first["logger"]) == ("info", "perdure.test")
    assert [first[name] for name in ("flow", "role", "session", "turn")] == ["f", "writer", "s", 2]
    assert "ValueError" in second["trace"]


@pytest.mark.parametrize("asked", ["debug", "info,json", "warning"])
def test_secrets_and_debug_lines_of_libraries_are_not_logged(asked: str) -> None:
    text = written(asked)
    assert KEY not in text
    assert "of no concern" not in text


@pytest.mark.parametrize("asked", ["loud", "info,xml"])
def test_error_for_an_unknown_log_setting_lists_the_known_settings(asked: str) -> None:
    with pytest.raises(ConfigError, match="debug, info, warning, error"):
        set_up_logs({"PERDURE_LOG": asked}, io.StringIO())
