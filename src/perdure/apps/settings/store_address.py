"""The address of a command's store. Imports little, because completion runs at each key press."""

from __future__ import annotations

import os
import sys

from perdure.apps.settings.lookup import setting
from perdure.client.lookup.store_files import default_address, environment_address

NAMESPACE = "default"
"""The namespace of a command without a setting."""


def configured_address(named: str | None) -> str:
    """Return the address of a command's store, unchecked; `named` comes before the settings.

    The order is `named`, $PERDURE_STORE, the user's setting, a file in the user's data folder.
    Raises: as `setting`; ConfigError without a home folder, and for an empty $PERDURE_STORE.
    """
    chosen = named or environment_address(os.environ) or setting("store.address")
    return chosen or default_address(os.environ, sys.platform)
