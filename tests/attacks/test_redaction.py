"""Secrets in every form: masked in output, and replaced in redacted exports."""

from __future__ import annotations

import html
import json
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.client.open import open as open_store
from perdure.interop.exports import ExportSelection, export_session
from perdure.interop.reports import ExportFormat
from perdure.secrets.mask import mask_secrets
from perdure.session.messages import assistant, tool_call, tool_result, user
from perdure.stores.access import lock_holder
from tests.fakes.secret_forms import forms

FORMATS: tuple[ExportFormat, ...] = ("perdure", "pi", "operator", "markdown", "html")


def test_secret_in_every_known_form_is_masked() -> None:
    tried = list(forms())
    missed = [name for name, text, secret in tried if secret in mask_secrets(text)]
    assert len(tried) >= 110
    assert missed == []
    quoted = [
        name for name, text, secret in tried if secret in mask_secrets(f"before\n{text}\nafter")
    ]
    assert quoted == []


async def test_redacted_export_contains_no_secret_in_any_format(tmp_path: Path) -> None:
    tried = list(forms())
    async with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        session = await store.create(id="s", title="forms")
        for number, (_, text, _) in enumerate(tried):
            call = f"c{number}"
            match number % 3:
                case 0:
                    await session.append(user(text))
                case 1:
                    await session.append(assistant(text))
                case _:
                    await session.append(assistant(tool_call(call, "read_file", {"path": "x"})))
                    await session.append(tool_result(call, text))
        for format in FORMATS:
            whole = await export_session(store.backend, session.id, format, ExportSelection())
            shown = html.unescape(whole.content.decode())
            there = [name for name, _, secret in tried if json.dumps(secret)[1:-1] in shown]
            assert len(there) > 100, format  # the expected text is present
            clean = await export_session(
                store.backend, session.id, format, ExportSelection(redact=("secrets",))
            )
            shown = html.unescape(clean.content.decode())
            assert [name for name, _, secret in tried if secret in shown] == [], format


def test_lock_error_masks_secrets_in_the_command_line_of_the_lock_holder(tmp_path: Path) -> None:
    """The lock holder is a program whose arguments include an address with a password."""
    place = tmp_path / "lock"
    place.touch()
    holding = (
        "import fcntl, sys; file = open(sys.argv[1]); fcntl.flock(file, fcntl.LOCK_EX);"
        "print('held', flush=True); sys.stdin.read()"
    )
    words = [str(place), "postgresql://ana:hunter22@db/x", "\x1b[31m"]
    with subprocess.Popen(
        [sys.executable, "-c", holding, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(lock_holder, "_PROGRAM_LETTERS", 400)
            named = lock_holder.holder_of(place)
        child.communicate()
    assert f"process {child.pid} (" in named
    assert "hunter22" not in named
    assert "\x1b" not in named
    assert "postgresql://ana:[redacted]@db/x" in named
