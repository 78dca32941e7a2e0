"""Where a server listens, and how it is reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.serving.endpoint import Wanted, listen

CERTIFICATE = Path("chain.pem")


@pytest.mark.parametrize(
    ("wanted", "address"),
    [
        (Wanted(), "http://127.0.0.1:80"),
        (Wanted("0.0.0.0", is_proxied=True, names=("a.example",)), "http://a.example:80"),
        (Wanted("::1", certificate=CERTIFICATE, key=CERTIFICATE), "https://127.0.0.1:80"),
    ],
)
def test_safe_endpoint_has_an_address(wanted: Wanted, address: str) -> None:
    wanted.check()
    assert wanted.address(80) == address


@pytest.mark.parametrize(
    "wanted", [Wanted("0.0.0.0"), Wanted("example.com"), Wanted(certificate=CERTIFICATE)]
)
def test_unsafe_endpoint_is_refused(wanted: Wanted) -> None:
    with pytest.raises(UsageMistake):
        wanted.check()


async def test_port_in_use_is_refused() -> None:
    async with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(UsageMistake, match=f"cannot listen on 127.0.0.1:{port}"):
            async with listen("127.0.0.1", port):
                pass
