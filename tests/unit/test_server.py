"""`perdure.server`: the public names of the server."""

from __future__ import annotations

import perdure


def test_server_module_exports_app_and_token_file() -> None:
    assert perdure.server.app.__doc__
    assert perdure.server.TokenFile.__doc__
