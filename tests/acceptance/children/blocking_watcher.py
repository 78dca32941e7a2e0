"""Watches without async until interrupted; prints a line at its start and after a clean end."""

from __future__ import annotations

import signal
import sys

import perdure

# A shell that runs the tests in the background has its children ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

try:
    with perdure.blocking.open(sys.argv[1]) as store:
        session = store.create(id="s")
        session.append(perdure.user("before"))
        for _ in session.watch(after=-1):
            sys.stdout.write("watching\n")
            sys.stdout.flush()
except KeyboardInterrupt:
    with perdure.blocking.open(sys.argv[1]) as store:
        sys.stdout.write(f"interrupted with {len(store.open('s').path())} entry\n")
        sys.stdout.flush()
