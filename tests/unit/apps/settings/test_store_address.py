"""The address of a command's store: the argument, the variable, the setting, the default."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.apps.settings.store_address import configured_address


def test_store_address_comes_from_the_first_given_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("PERDURE_STORE", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    assert configured_address(None).endswith("/perdure/perdure.db")
    settings = tmp_path / ".config" / "perdure" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('[store]\naddress = "sqlite:///set.db"\n', encoding="utf-8")
    assert configured_address(None) == "sqlite:///set.db"
    monkeypatch.setenv("PERDURE_STORE", "sqlite:///variable.db")
    assert configured_address(None) == "sqlite:///variable.db"
    assert configured_address("memory:") == "memory:"
