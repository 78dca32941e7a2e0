"""``perdure mcp serve --http``: errors that are found before the server listens."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perdure.apps.server_commands.mcp import require_libraries
from perdure.errors import ConfigError
from tests.acceptance.cli.conftest import World


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--port", "9000"), "options of an address need --http"),
        (("--host", "127.0.0.1"), "options of an address need --http"),
        (("--behind-proxy",), "options of an address need --http"),
        (("--http", "--subject", "ana"), "each token says whose sessions"),
        (("--http", "--all-subjects"), "each token says whose sessions"),
        (("--http", "--host", "0.0.0.0"), "needs TLS"),
    ],
)
def test_invalid_argument_gives_an_error_of_one_sentence(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    ended = World(tmp_path).run("mcp", "serve", *words)
    assert ended.code == 2
    assert said in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("missing", "extra"), [("uvicorn", "server"), ("mcp.server.mcpserver", "mcp")]
)
def test_error_for_a_missing_library_contains_the_extra(
    monkeypatch: pytest.MonkeyPatch, missing: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "perdure.apps.server_commands.server_process", raising=False)
    with pytest.raises(ConfigError, match=rf"perdure\[{extra}\]"):
        require_libraries()
