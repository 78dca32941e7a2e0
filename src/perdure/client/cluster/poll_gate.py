"""Let a thread of DBOS poll its queue only while the queue has work.

DBOS polls each queue on a thread of its own, and each poll takes 3 ms of CPU. With this module, one
thread of perdure polls all queues in one statement, and the threads of DBOS wait for that thread.
Between two polls, each DBOS thread calls `wait` of the event that ends the thread. This module
replaces the method `wait`. For a thread that this module does not recognise, the original `wait` is
called.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

Ask = Callable[[Collection[str]], Iterable[str]]
"""Returns those of the given queues that have work that can begin. Blocks the thread."""

IDLE_S = 2.0
"""How often a queue is polled although it seems to have no work."""

_THREAD = "queue-worker-"


class PollGate:
    """Controls the waits of the threads that poll the queues in `queues`; the queues can change."""

    def __init__(self, queues: Collection[str], ask: Ask, interval_s: float) -> None:
        self._queues = queues
        self._ask = ask
        self._interval_s = interval_s
        self._news = threading.Condition()
        self._with_work: frozenset[str] | None = None
        self._round = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="perdure-queues", daemon=True)

    def start(self, events: Iterable[threading.Event]) -> None:
        """Start to poll, and let the threads of `events` wait until their queues have work."""
        for event in events:
            self._gate(event)
        self._thread.start()

    def stop(self) -> None:
        """Release every thread, and stop polling. Blocks the thread."""
        self._stop.set()
        with self._news:
            self._news.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def _gate(self, event: threading.Event) -> None:
        plain = event.wait

        def wait(timeout: float | None = None) -> bool:
            name = threading.current_thread().name
            if timeout is None or not name.startswith(_THREAD):
                return plain(timeout)
            return self._wait(name.removeprefix(_THREAD), plain, event, timeout)

        gated: Any = event
        gated.wait = wait

    def _wait(
        self,
        queue: str,
        plain: Callable[[float | None], bool],
        event: threading.Event,
        timeout: float,
    ) -> bool:
        """Wait for `timeout`, and then until the queue has work."""
        asked = self._round
        if plain(timeout):
            return True
        until = time.monotonic() + IDLE_S
        with self._news:
            while not event.is_set() and not self._stop.is_set():
                if self._with_work is None or (self._round > asked and queue in self._with_work):
                    break
                left_s = until - time.monotonic()
                if left_s <= 0:
                    break
                self._news.wait(min(left_s, self._interval_s * 4))
        return event.is_set()

    def _run(self) -> None:
        """Poll repeatedly; after a failed poll, let every thread of DBOS poll its queue."""
        while not self._stop.wait(self._interval_s):
            try:
                found = frozenset(self._ask(tuple(self._queues)))
            except Exception:  # noqa: BLE001 - whatever it is: the threads poll, and report it
                found = None
            with self._news:
                self._with_work = found
                self._round += 1
                if found is None or found:
                    self._news.notify_all()
