"""Change a store while another process opens it.

replace.py move PATH   move ``new.db`` from the same folder into its place
replace.py rekey PATH  encrypt it
replace.py hold PATH   lock it for half a second; print "ready"
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import cast

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

import apsw

from perdure.stores.access.sqlite_connection import Connection
from perdure.stores.key import StoreKey
from perdure.stores.sqlite.maintenance.file_swap import put_in_place
from perdure.stores.sqlite.maintenance.rekey import rekey


def main(how: str, path: Path) -> None:
    if how == "move":
        put_in_place(path.with_name("new.db"), path)
    elif how == "rekey":
        rekey(path, None, StoreKey.of("ab" * 32), lambda _done, _total: None)
    else:
        db = cast("Connection", apsw.Connection(str(path)))
        db.pragma("locking_mode", "EXCLUSIVE")
        db.execute("BEGIN EXCLUSIVE")
        os.write(1, b"ready\n")
        time.sleep(0.5)
        db.close()
        os.write(1, b"done\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
