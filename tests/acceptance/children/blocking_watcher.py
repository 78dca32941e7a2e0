"""Watches without async until it is interrupted; says when it begins and that it ended cleanly."""

from __future__ import annotations

import sys

import perdure

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
