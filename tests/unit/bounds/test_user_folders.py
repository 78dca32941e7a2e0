"""The folders with the files of a user."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.bounds.user_folders import user_folder
from perdure.errors import ConfigError


def test_relative_user_folder_in_the_environment_is_ignored() -> None:
    account = Path(os.path.expanduser("~"))  # noqa: PTH111 - as the code, which never raises
    for environment, expected in (
        ({"XDG_CONFIG_HOME": "/c", "HOME": "/h"}, Path("/c/perdure")),
        ({"XDG_CONFIG_HOME": "relative", "HOME": "/h"}, Path("/h/.config/perdure")),
        ({"HOME": "/h"}, Path("/h/.config/perdure")),
        ({"USERPROFILE": "/p"}, Path("/p/.config/perdure")),
        ({"HOME": "relative"}, account / ".config" / "perdure"),
        ({"HOME": "relative", "USERPROFILE": "/p"}, Path("/p/.config/perdure")),
        ({}, account / ".config" / "perdure"),
    ):
        assert user_folder("XDG_CONFIG_HOME", ".config", environment) == expected, environment


def test_user_folder_without_a_home_folder_raises_config_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "relative")  # as without an account: no absolute path is known
    for environment in ({}, {"HOME": "relative"}, {"HOME": ""}):
        with pytest.raises(ConfigError, match="set HOME"):
            user_folder("XDG_CONFIG_HOME", ".config", environment)
