"""Exclude what a process has loaded from garbage collection, in this process and in its forks.

The process from which the forks are made loads this module first. Garbage collection while the
other modules are loaded would take a quarter of the loading time. In a fork, each collection would
copy the memory of all modules.
"""

from __future__ import annotations

import gc
import os

gc.disable()
os.register_at_fork(before=gc.freeze, after_in_child=gc.enable)
