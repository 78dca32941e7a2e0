"""A first run whose user accepts a key: prints "ready", waits for a line, and prints its key."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from perdure.apps.store_access import offered_key
from perdure.client.keys import has_keyring

if __name__ == "__main__":
    assert has_keyring()
    os.write(1, b"ready\n")
    sys.stdin.readline()
    key = offered_key(sys.argv[1], lambda: True)
    assert key is not None
    os.write(1, key.reveal().encode() + b"\n")
