"""Load the package ``keyring`` only if one of its backends can work on this machine.

Loading ``keyring`` loads every backend, which takes longer than most commands.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

_BUS = ("DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY")
"""Environment variables that show that a session bus exists, or can be started for a display."""

_OWN = "keyring.backends."


def usable_keyring() -> ModuleType | None:
    """Return the module ``keyring``; None if no keyring can work on this machine.

    Raises: ImportError if the package is missing.
    """
    if "keyring" not in sys.modules and _is_without_backend(sys.platform, os.environ):
        return None
    return importlib.import_module("keyring")


def _is_without_backend(platform: str, environment: Mapping[str, str]) -> bool:
    """Return whether no backend can work on this machine.

    On Linux, none of the built-in backends works without a session bus. If the user configured a
    backend, or installed a package with a backend, the result is False.
    """
    if platform != "linux" or "PYTHON_KEYRING_BACKEND" in environment:
        return False
    runtime = environment.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    if any(environment.get(name) for name in _BUS) or Path(runtime, "bus").exists():
        return False
    home = Path(environment.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111 - Path.home() raises where there is none
    configured = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    if (configured / "python_keyring" / "keyringrc.cfg").exists():
        return False
    return not _has_foreign_backend()


@cache
def _has_foreign_backend() -> bool:
    """Return whether another package provides a backend, according to the entry points."""
    metadata: Any = importlib.import_module("importlib.metadata")
    found = metadata.entry_points(group="keyring.backends")
    return any(not each.value.startswith(_OWN) for each in found)
