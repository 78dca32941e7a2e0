"""Each store and namespace has its own tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure.apps.server_commands.token_location import tokens_of


async def test_token_is_valid_only_in_its_namespace_and_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    found: list[Path] = []
    for name, namespace in (("a", "default"), ("a", "other"), ("b", "default")):
        address = f"sqlite:///{tmp_path / name}.db"
        async with perdure.open(address, namespace=namespace) as store:
            found.append((await tokens_of(store)).path)
            assert (await tokens_of(store)).path == found[-1]
    assert len(set(found)) == 3
    monkeypatch.setenv("PERDURE_TOKENS", str(tmp_path / "named.json"))
    async with perdure.open("memory:") as store:
        assert (await tokens_of(store)).path == tmp_path / "named.json"
