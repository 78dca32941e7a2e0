"""The package keyring is loaded only if one of its backends can work."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.samples import case

_ASKED = """
import json, os, sys
from perdure.secrets.vault import in_keyring
for environment in json.loads(sys.argv[1]):
    if os.fork() == 0:
        try:
            os.environ.clear()
            os.environ.update(environment)
            sys.path += filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
            print(in_keyring("x"), "keyring" in sys.modules, flush=True)
        finally:
            os._exit(0)
    os.wait()
"""
"""A program that asks a keyring in a fork for each environment, and prints whether it is loaded."""


@pytest.mark.full_only
@pytest.mark.skipif(sys.platform != "linux", reason="other systems always have a keyring")
def test_keyring_is_not_loaded_without_a_usable_backend(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    configured = tmp_path / "config" / "python_keyring" / "keyringrc.cfg"
    configured.parent.mkdir(parents=True)
    configured.write_text("[backend]\ndefault-keyring=keyring.backends.null.Keyring\n")
    (tmp_path / "session").mkdir()
    (tmp_path / "session" / "bus").touch()
    package = tmp_path / "packages" / "other-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[keyring.backends]\nother = json\n")
    cases: tuple[tuple[dict[str, str], bool], ...] = (
        ({}, False),
        ({"DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere"}, True),
        ({"DISPLAY": ":0"}, True),
        ({"XDG_RUNTIME_DIR": str(tmp_path / "session")}, True),
        ({"XDG_CONFIG_HOME": str(tmp_path / "config")}, True),
        ({"PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring"}, True),
        ({"PYTHONPATH": str(tmp_path / "packages")}, True),
    )
    environments = json.dumps([{**home, **extra} for extra, _ in cases])
    command = [sys.executable, "-c", _ASKED, environments]
    done = subprocess.run(command, env=home, capture_output=True, text=True, check=True)
    for (extra, is_loaded), line in zip(cases, done.stdout.splitlines(), strict=True):
        with case(extra):
            assert line.split() == ["None", str(is_loaded)]
