"""``perdure serve``: errors that are found before the server listens."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import World


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--host", "0.0.0.0"), "needs TLS"),
        (("--tls-key", "key.pem"), "belong together"),
        (("nothing",), "is not MODULE:FACTORY"),
        (("no_such_module:make",), "there is no module 'no_such_module'"),
        (("json:nothing",), "has no function 'nothing'"),
        (("shop:wrong",), "must return a perdure.Runtime, or agents"),
        (("shop:empty",), "shop:empty failed with TypeError: empty() takes 0"),
        (("broken:make",), "broken:make failed with KeyError: 'NO_KEY'"),
    ],
)
def test_invalid_argument_gives_an_error_of_one_sentence(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "shop.py").write_text("def wrong(store):\n    return [1]\n\ndef empty(): ...\n")
    (tmp_path / "broken.py").write_text("import os\nos.environ['NO_KEY']\n")
    ended = World(tmp_path).run("serve", *words, "--port", "0")
    assert ended.code == 2
    assert said in ended.err
    assert "Traceback" not in ended.err


def test_error_for_a_port_in_use_contains_the_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = World(tmp_path).run("serve", "--port", port)
    assert ended.code == 2
    assert f"cannot listen on 127.0.0.1:{port}" in ended.err
