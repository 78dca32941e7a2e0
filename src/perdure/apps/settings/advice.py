"""Advice for a mistaken command line that tries to set a setting."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import msgspec

from perdure.apps.settings.document import BUILT_IN
from perdure.apps.settings.lookup import person_file
from perdure.secrets.mask import mask_secrets


def advice_to_set(words: Sequence[str]) -> str | None:
    """Return the TOML line and the file to edit in place of ``perdure config set KEY VALUE``.

    `words` are the arguments of the command line. Returns None if the key is unknown or the value
    is missing. There is no command ``config set``, because people edit the settings file by hand.
    """
    key, *values = words[2:] or [""]
    section, _, name = key.partition(".")
    default = BUILT_IN.get(key, {})
    if not values or isinstance(default, Mapping):
        return None
    plain = " ".join(values)
    is_literal = isinstance(default, int | float) or name.endswith("_s")  # a bool is an int
    is_list = isinstance(default, tuple)
    if is_list:
        plain = ", ".join(_quoted(each) for each in values)
    line = f"[{plain}]" if is_list else plain if is_literal else _quoted(plain)
    return (
        f"there is no command 'set' of `perdure config`: write {name} = {line} "
        f"in the section [{section}] of {person_file(os.environ)}"
    )


def _quoted(text: str) -> str:
    return msgspec.json.encode(mask_secrets(text)).decode()
