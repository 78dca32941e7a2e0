"""Finds the address of the store that a command uses.

This module imports little, because completion runs at each key press.
"""

from __future__ import annotations

import os
import sys

from perdure.apps.settings.lookup import setting
from perdure.client.lookup.store_files import default_address, environment_address

NAMESPACE = "default"
"""The namespace of a command if no setting names another one."""


def configured_address(named: str | None) -> str:
    """Return the address of the store, unchecked; `named` has priority over the settings.

    The order of priority is: `named`, $PERDURE_STORE, the user's setting, a file in the user's data
    folder.
    Raises: the errors of `setting`.
    Raises: ConfigError if there is no home folder, or if $PERDURE_STORE is empty.
    """
    chosen = named or environment_address(os.environ) or setting("store.address")
    return chosen or default_address(os.environ, sys.platform)
